"""State that processes keep: what each holds as it parks, and offers to the next attempt.

A process that has parked holds the line of its state, if that is whole, until it ends or makes a step. The framework is
a good one: a rank that lacks the restore point gets it from one of its group, and fails where none has it any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gangsidecar.wire import Checkpoint
from tests.simulation import disks
from tests.simulation.values import CHILD, Fault, Proc

if TYPE_CHECKING:
    from gangsidecar.wire import Run
    from tests.simulation.universe import Universe

TORN: Final = "a process is interrupted while its state changes"


def offered(u: Universe, uid: str, proc: Proc) -> Proc:
    """The process as it parks. It registers the step that it holds, unless it was interrupted in the change to it."""
    tier, box = next((one for one in disks.tiers(u.spec) if one.scope == "Process"), None), u.boxes[uid]
    if tier is None or proc.rank is None or proc.local_rank == CHILD or proc.torn or box.poisoned or not box.line:
        return proc
    u.power["a process offered its state"] += 1
    u.ghost = u.ghost._replace(was_whole=True)
    u.feed(uid, Checkpoint(tier.name, box.step, proc.rank, proc.attempt))
    return replace(proc, holds=box.line)


def started(u: Universe, run: Run, parked: tuple[Proc, ...], proc: Proc) -> Proc:
    """The process of a new attempt: where it has gone on, and this step is restored, with what it held.

    A process that had no part in the last attempts may hold this step of another history: it gets the state anew.
    """
    point, held = run.restore, next((one.holds for one in parked if one.local_rank == proc.local_rank), None)
    if point is None or held is None or held != disks.cut(u.ghost.trunk, point.step):
        return proc
    return replace(proc, holds=held if _scope(u, point.tier) == "Process" else None)


def _scope(u: Universe, tier: str) -> str:
    return next(str(one.scope) for one in disks.tiers(u.spec) if one.name == tier)


def _tear(u: Universe, target: int) -> None:
    found = [(uid, one) for uid, box in sorted(u.boxes.items()) for one in box.procs if one.local_rank != CHILD]
    if found:
        uid, proc = found[target % len(found)]
        procs = tuple(replace(one, torn=True) if one == proc else one for one in u.boxes[uid].procs)
        u.boxes[uid] = u.boxes[uid]._replace(procs=procs)


FAULTS: Final[dict[str, Fault]] = {TORN: _tear}
