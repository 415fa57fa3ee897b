"""Training: the ranks make steps together, and each saves its part to every checkpoint tier, or fails to.

The framework of the fake workers is a good one: it says Begun before it writes and Completed after it, writes the file
that marks a step complete last, and keeps the newest steps only. In a Peers tier the next member holds copies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from gangctl.api.gangjob import Tier
from gangsidecar.wire import Checkpoint, Dropped, Progress
from tests.simulation import checks, disks
from tests.simulation.disks import SHARED_DIRECTORY, File, Line, Marker, Rank
from tests.simulation.universe import Universe
from tests.simulation.values import CHILD, Box, Proc

KEPT_STEPS: Final = 2
SAVE_EVERY: Final = 4
"""Steps between two checkpoints where processes keep their state."""


class Part(NamedTuple):
    """What one rank saves in one tier."""

    tier: Tier
    step: int
    rank: Rank
    attempt: int


def can_train(u: Universe) -> list[tuple[str, Proc]]:
    """Members that can make the next step: all ranks of the attempt are there, and none is ahead."""
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
    """One member makes a step and its ranks save their parts, also while they are being stopped."""
    step = make_step(u, uid, proc)
    for part in parts(u, uid, step, proc.attempt):
        begin(u, uid, part)
        complete(u, uid, part)
        copy(u, uid, part)
    note_whole(u, step)


def make_step(u: Universe, uid: str, proc: Proc) -> int:
    """One member makes a step; the gang's line grows with it."""
    box = u.boxes[uid]
    step = box.step + 1
    line = disks.grown(box.line, proc.attempt, step)
    procs = tuple(replace(one, holds=None) if one.holds else one for one in box.procs)
    u.boxes[uid] = box._replace(step=step, line=line, procs=procs)
    if box.node in u.sick:
        checks.spoils(u, uid, line)
    if not u.ghost.trunk:
        u.ghost = u.ghost._replace(trained_since=u.now)
    if step > disks.last_step(u.ghost.trunk):
        u.ghost = u.ghost._replace(trunk=line)
    if u.ghost.trained_at != u.now:
        u.ghost = u.ghost._replace(trained_at=u.now, trained_before=u.ghost.trained_at)
    u.feed(uid, Progress(proc.attempt, step, 0, every=1))
    return step


def parts(u: Universe, uid: str, step: int, attempt: int) -> list[Part]:
    """What the ranks of a pod save at this step."""
    ranks = ranks_of(u, u.boxes[uid])
    tiers = disks.tiers(u.spec)
    if any(tier.scope == "Process" for tier in tiers):  # What processes keep saves checkpoints.
        tiers = tuple(tier for tier in tiers if tier.scope != "Process" and step % SAVE_EVERY == 0)
    return [Part(tier, step, rank, attempt) for tier in tiers for rank in ranks]


def note_whole(u: Universe, step: int) -> None:
    """Remember that a step was once complete for every rank."""
    if not u.ghost.was_whole and any(disks.is_whole(u, tier, step) for tier in disks.tiers(u.spec)):
        u.ghost = u.ghost._replace(was_whole=True)


def ranks_of(u: Universe, box: Box) -> list[Rank]:
    """The ranks that run in a pod."""
    group = u.group_of(box.member)
    return [(group, one.rank) for one in box.procs if one.rank is not None and one.local_rank != CHILD]


def begin(u: Universe, uid: str, part: Part) -> None:
    """A rank begins to write its part: from now on, what was there doesn't exist."""
    tier, step, rank, attempt = part
    if u.boxes[uid].unmounted and tier.scope == "Shared":
        return
    if disks.is_directory(tier):
        old = [one for one in u.disk.files if (one.tier, one.step) == (tier.name, step)]
        if u.disk.marker(tier.name, step) is not None or any(one.attempt != attempt for one in old):
            u.disk = u.disk.without_steps(tier.name, [step])
    else:
        u.feed(uid, Dropped(tier.name, step, rank[1], attempt))
    _put(u, uid, part, None)


def complete(u: Universe, uid: str, part: Part) -> None:
    """A rank has written its part; the last one marks the step complete. Older steps go."""
    tier, step, rank, attempt = part
    if u.boxes[uid].unmounted and tier.scope == "Shared":
        return
    _put(u, uid, part, u.boxes[uid].line)
    if disks.is_directory(tier):
        _mark(u, tier, step, attempt)
        return
    u.feed(uid, Checkpoint(tier.name, step, rank[1], attempt, disks.path(tier, step)))
    for old in kept(u, uid, tier, rank):
        if old <= step - KEPT_STEPS:
            drop(u, uid, part._replace(step=old))


def copy(u: Universe, uid: str, part: Part) -> None:
    """The next member of the process group takes a copy of a part that a rank has completed."""
    tier, step, rank, attempt = part
    if tier.scope != "Peers":
        return
    pods = list(dict.fromkeys(pod for pod, (group, _) in disks.places(u, u.status) if group == rank[0]))
    peer = pods[(pods.index(uid) + 1) % len(pods)] if uid in pods else uid
    taking = u.boxes.get(peer)
    if peer == uid or taking is None or not taking.procs or taking.procs[0].attempt != attempt:
        return
    for old in [one.step for one in u.disk.files if (one.tier, one.where, one.rank) == (tier.name, peer, rank)]:
        if old <= step - KEPT_STEPS:
            u.feed(peer, Dropped(tier.name, old, rank[1], attempt))
            u.disk = u.disk.with_file(File(tier.name, peer, old, rank, attempt, uid, None))
    u.disk = u.disk.with_file(File(tier.name, peer, step, rank, attempt, uid, u.boxes[uid].line))
    u.feed(peer, Checkpoint(tier.name, step, rank[1], attempt))


def kept(u: Universe, uid: str, tier: Tier, rank: Rank) -> list[int]:
    """The steps of which a rank has its part."""
    place = (tier.name, disks.where(tier, uid), rank)
    return [one.step for one in u.disk.files if (one.tier, one.where, one.rank) == place and one.line]


def drop(u: Universe, uid: str, part: Part) -> None:
    """A rank deletes its part."""
    u.feed(uid, Dropped(part.tier.name, part.step, part.rank[1], part.attempt))
    _put(u, uid, part, None)


def _put(u: Universe, uid: str, part: Part, line: Line | None) -> None:
    where = disks.where(part.tier, uid)
    u.disk = u.disk.with_file(File(part.tier.name, where, part.step, part.rank, part.attempt, uid, line))


def _mark(u: Universe, tier: Tier, step: int, attempt: int) -> None:
    written = [one for one in u.disk.files if (one.tier, one.where, one.step) == (tier.name, SHARED_DIRECTORY, step)]
    ranks = {rank for _, rank in disks.places(u, u.status)}
    if {one.rank for one in written if one.line is not None} != ranks:
        return
    marker = Marker(tier.name, step, f"attempt-{attempt}")
    markers = sorted((*u.disk.markers, marker), key=lambda one: (one.tier, one.step))
    u.disk = replace(u.disk, markers=tuple(markers))
    complete_steps = [one.step for one in markers if one.tier == tier.name]
    u.disk = u.disk.without_steps(tier.name, complete_steps[:-KEPT_STEPS])  # The last rank to write prunes.
