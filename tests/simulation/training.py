"""Training in the simulated world: ranks step together, and save checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gangsidecar.wire import Checkpoint, Progress
from tests.simulation.universe import Universe
from tests.simulation.values import Proc, Saved

KEPT_STEPS: Final = 2


def can_train(u: Universe) -> list[tuple[str, Proc]]:
    """Processes that can make the next step: all ranks of the attempt are there, and none is ahead."""
    living = [
        (uid, proc)
        for uid, box in u.boxes.items()
        if box.machine is not None and not box.poisoned
        for proc in box.procs
        if proc.local_rank == 0 and proc.rank is not None
    ]
    attempts = {proc.attempt for _, proc in living}
    if len(attempts) != 1 or len(living) < len(u.places):
        return []
    slowest = min(u.boxes[uid].step for uid, _ in living)
    return [(uid, proc) for uid, proc in living if u.boxes[uid].step == slowest]


def train(u: Universe, uid: str, proc: Proc) -> None:
    """One rank makes a step and saves its part, also while it is being stopped."""
    box = u.boxes[uid]
    step = box.step + 1
    u.boxes[uid] = replace(box, step=step)
    assert proc.rank is not None
    u.feed(uid, Progress(proc.attempt, step, 0))
    if u.spec.checkpoint is None:
        return
    for tier in u.spec.checkpoint.tiers:
        if tier.scope == "Member":
            u.feed(uid, Checkpoint(tier.name, step, proc.rank, proc.attempt))
        else:
            _save(u, step, proc)


def _save(u: Universe, step: int, proc: Proc) -> None:
    marker = f"attempt-{proc.attempt}"
    old = next((saved for saved in u.disk if (saved.step, saved.marker) == (step, marker)), None)
    assert proc.rank is not None
    parts = frozenset({proc.rank}) | (old.parts if old is not None else frozenset())
    complete = len(parts) == len(u.places)
    others = [saved for saved in u.disk if saved.step != step]
    if complete:  # The last rank to write prunes.
        older = sorted((saved for saved in others if saved.complete), key=lambda saved: saved.step)
        pruned = older[: max(0, len(older) - KEPT_STEPS + 1)]
        others = [saved for saved in others if saved not in pruned]
    u.disk = tuple(sorted([*others, Saved(step, marker, parts, complete)], key=lambda saved: saved.step))
