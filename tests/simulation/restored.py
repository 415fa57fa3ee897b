"""Invariant 4: what an attempt restores, compared with the files as they are.

    the restore point (tier, step) of an attempt: every rank's file is there, all hold one line, and that line is the
    trunk as it was after this step, where trunk = the furthest line of the attempt that was started before

What a process holds is there for all ranks of its group; where it has ended, its pod must not offer it any more. So a
step is never put together from two histories, never one that was dropped, begun, or superseded by a restart from
an older step, and none that came from a state that its framework does not trust, as far as the controller knew of that.
Where the spec trusts only verified steps, it is one. It is the newest such step that the controller could know of; and
a gang that was ever restored from a step, or has made progress for long and looks into a directory, must not begin at
zero by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangctl.api.gangjob import ApiSource, Tier
from gangctl.api.reasons import Reason
from gangctl.api.roles import number_places
from gangctl.api.status import GangPhase, RestorePoint, Status
from gangctl.core.facts.gang import holders, incarnation, roles_of
from gangsidecar.supervisor import machine
from gangsidecar.wire import Run
from tests.simulation import disks
from tests.simulation.disks import File, Line
from tests.simulation.values import seconds
from tests.simulation.violations import require

if TYPE_CHECKING:
    from tests.simulation.universe import Universe
    from tests.simulation.values import Box, Leader

Key = tuple[str, int]
"""Tier and step."""
LITTLE_MS = 1_800_000
"""A gang that has trained for so long may start from the beginning if it finds nothing."""


def stored(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """What write 2 fixes, and why a gang is held."""
    if u.spec.checkpoint is None:
        return
    if leader.corrupt is not None and old.started_attempt == u.ghost.ran[0]:
        tainted = disks.cut(u.ghost.trunk, leader.corrupt)
        if disks.last_step(tainted) == leader.corrupt:
            u.ghost = u.ghost._replace(tainted=u.ghost.tainted | {tainted})
    if new.phase is GangPhase.RUNNING and old.phase is not GangPhase.RUNNING:
        _started(u, leader, new, asked=old.restart_from is not None)
    if new.phase is GangPhase.HELD and old.phase is not GangPhase.HELD:
        wanting = any(one.reason == Reason.NO_RESTORE_POINT for one in new.conditions)
        directory = any(disks.is_directory(tier) for tier in disks.tiers(u.spec))
        told = [one.report.progress for one in leader.heard]
        made = any(one is not None and one.step for one in (*told, old.progress))
        progressed = directory and made
        late = leader.scanned_at >= seconds(leader.thought_at + leader.skew)  # For what it has decided.
        unlisted = directory and (leader.scanned is None or leader.scanned.attempt != old.attempt or late)
        require(
            not wanting or u.ghost.was_whole or progressed or unlisted,
            4,
            "it is held for want of a restore point, and no step was ever complete",
        )


def corrupt_since(leader: Leader) -> int | None:
    """The first step that is not trusted by a worker of the attempt that ran last, as far as the controller heard."""
    found = [one.report.corruption for one in leader.heard if one.report.corruption is not None]
    return min((one.since_step for one in found if one.attempt == leader.status.started_attempt), default=None)


def _started(u: Universe, leader: Leader, new: Status, *, asked: bool) -> None:
    point, usable = new.restore_point, _usable(u, leader, new)
    wish = u.spec.restart_from
    if point is None and wish.type == "Beginning" and wish.restart_token == u.spec.restart_token:
        u.ghost = u.ghost._replace(trunk=(), was_restored=False, gone_unheard=False)
        return
    if point is None:
        require(not usable, 4, f"it starts from the beginning though {sorted(usable)} could be loaded")
        require(not u.ghost.was_restored, 4, "it starts from the beginning though it was restored from a step before")
        saw = any(told.report.progress is not None and told.report.progress.step for told in leader.heard)
        progressed = u.ghost.trunk and (saw or (u.status.progress is not None and u.status.progress.step))
        directory = any(disks.is_directory(tier) for tier in disks.tiers(u.spec))
        long = u.ghost.trained_at - u.ghost.trained_since > LITTLE_MS
        require(not (progressed and directory and long), 4, "it starts from the beginning though it trained for long")
        u.ghost = u.ghost._replace(trunk=(), gone_unheard=False)
        _hide(u, leader, 0)
        return
    line, unheard = _line(u, leader, new, point)
    corrupt = {one for one in u.ghost.tainted if line is not None and disks.cut(line, disks.last_step(one)) == one}
    if asked:  # The user trusts it.
        u.ghost = u.ghost._replace(tainted=u.ghost.tainted - corrupt)
    elif (point.tier, point.step) not in u.ghost.hidden:
        require(not corrupt, 4, f"step {point.step} ({point.tier}) is of {line}, which is not trusted: {corrupt}")
    if (point.tier, point.step) in u.ghost.hidden and line is not None:
        u.ghost = u.ghost._replace(trunk=line, was_restored=True, gone_unheard=unheard)
    _hide(u, leader, point.step)
    rejected = {entry.marker for entry in new.rejected_steps if (entry.tier, entry.step) == (point.tier, point.step)}
    marker = u.disk.marker(point.tier, point.step)
    if marker is not None:
        require(marker.name not in rejected, 4, f"step {point.step} ({point.tier}) was rejected")
    trunk = disks.cut(u.ghost.trunk, point.step)
    require(disks.last_step(trunk) == point.step, 4, f"step {point.step} ({point.tier}) is of a future that is undone")
    require(line is None or line == trunk, 4, f"step {point.step} ({point.tier}) is of {line} and not of {trunk}")
    older = u.status.restore_point
    best = max((step for _, step in usable), default=0)
    if older is not None and point.step < older.step and _made_no_step(new, older.step):
        best = max((step for _, step in usable if step < older.step), default=0)  # The ladder asks for an older one.
    needed = u.spec.checkpoint is not None and u.spec.checkpoint.restore.trust == "Verified" and not asked
    require(not needed or trunk in u.ghost.verified, 4, f"step {point.step} ({point.tier}) was not verified")
    require(point.step >= best, 4, f"step {point.step} was chosen though {best} can be loaded by all")
    u.ghost = u.ghost._replace(trunk=trunk, was_restored=True, gone_unheard=unheard)


def _made_no_step(new: Status, step: int) -> bool:
    """Whether the newest attempt made none, as its ranks told, or as two from this step let guess that told nothing."""
    told = [(one.progressed, one.restored_step) for one in new.ledger[-2:]]
    return told[-1:] == [(False, step)] or told == [(None, step), (None, step)]


def _hide(u: Universe, leader: Leader, step: int) -> None:
    """Remember which newer steps the controller could not know of: docs/limits.md has it."""
    shown = {(one.tier, one.step) for one in (() if leader.scanned is None else leader.scanned.found)}
    newer = {(one.tier, one.step) for one in u.disk.markers if one.step > step}
    u.ghost = u.ghost._replace(hidden=u.ghost.hidden | (newer - shown))


def _line(u: Universe, leader: Leader, new: Status, point: RestorePoint) -> tuple[Line | None, bool]:
    """What the ranks would load, and whether a part is gone that no pod could have told of."""
    tier = next(one for one in disks.tiers(u.spec) if one.name == point.tier)
    lines: set[Line] = set()
    unheard = False
    for (_, rank), file in disks.loadable(u, new, tier, point.step).items():
        if file is not None and file.line is not None:
            lines.add(file.line)
            continue
        if tier.scope == "Process":  # It has ended, and the controller has not heard of it yet.
            known = point.step in _registered_by_all(u, leader, new, tier) and not _offers(u, new, point)
            require(known, 4, f"rank {rank} can't get step {point.step} from any process, which should be known")
            unheard = True
            continue
        teller_is_gone = file is not None and tier.scope == "Shared" and not _tells(u, new, file)
        require(teller_is_gone, 4, f"rank {rank} can't load step {point.step} ({point.tier})")
        unheard = True
    require(len(lines) <= 1, 4, f"step {point.step} ({point.tier}) is of two histories: {sorted(lines)}")
    return (lines.pop() if lines else None), unheard


def _offers(u: Universe, new: Status, point: RestorePoint) -> list[str]:
    """The pods of the attempt that say to this moment that a process of theirs has the step."""
    states = {pod: u.boxes[pod].machine for pod, _ in disks.places(u, new) if pod in u.boxes}
    return [
        pod
        for pod, state in states.items()
        for one in (() if state is None else machine.report(state, u.now, 0).checkpoints)
        if (one.tier, one.step) == (point.tier, point.step) and one.attempt >= u.status.started_attempt
    ]


def _tells(u: Universe, new: Status, file: File) -> bool:
    """Whether the pod that wrote or deleted it still speaks for its place."""
    box = u.boxes.get(file.pod)
    current = box is not None and incarnation(new, box.member) == box.incarnation
    return current and box is not None and box.member in holders(u.spec, new).values()


def _usable(u: Universe, leader: Leader, new: Status) -> set[Key]:
    """Steps that the controller could know of, that every rank can load, and that were not rejected."""
    rejected = {(entry.tier, entry.step, entry.marker) for entry in new.rejected_steps}
    found: set[Key] = set()
    for tier in disks.tiers(u.spec):
        if isinstance(tier.source, ApiSource):
            out = {(one, step) for one, step, _ in rejected}
            known = _registered_by_all(u, leader, new, tier) | {
                entry.step for entry in u.status.recorded_steps if entry.tier == tier.name
            }
            steps = {step for step in known if (tier.name, step) not in out}
        elif any(box.unmounted for box in u.boxes.values()):
            steps = set()
        else:
            markers = (one for one in u.disk.markers if one.tier == tier.name)
            steps = {one.step for one in markers if (one.tier, one.step, one.name) not in rejected}
        for step in steps & _verified(u, leader, steps):
            files = disks.loadable(u, new, tier, step).values()
            line = disks.cut(u.ghost.trunk, step)
            if all(file is not None and file.line == line for file in files):
                found.add((tier.name, step))
    return found


def _verified(u: Universe, leader: Leader, steps: set[int]) -> set[int]:
    """Those that the gang's policy trusts, as far as the controller could know."""
    if u.spec.checkpoint is None or u.spec.checkpoint.restore.trust == "Any":
        return steps
    known = {one.step for told in leader.heard for one in told.report.verified}
    known |= {one.step for one in u.status.verified_steps}
    return {step for step in known if disks.cut(u.ghost.trunk, step) in u.ghost.verified}


def _registered_by_all(u: Universe, leader: Leader, new: Status, tier: Tier) -> set[int]:
    said = {(h.report.member, h.report.incarnation): h.report for h in leader.heard}
    reports = {place: said.get((one, incarnation(new, one))) for place, one in holders(u.spec, new).items()}
    if roles_of(u.spec, new) != u.roles and not tier.reshardable:
        return set()
    numbering, steps = number_places(roles_of(u.spec, new)), list[set[int]]()
    if tier.scope == "Process":  # Any one of a group gives it to the others.
        for group in numbering.groups.values():
            told = [one for place in group if (report := reports[place]) is not None for one in report.checkpoints]
            steps.append(
                {one.step for one in told if one.tier == tier.name and one.attempt >= u.status.started_attempt}
            )
        return set.intersection(*steps)
    for place, ranks in numbering.ranks.items():
        group = next(those for those in numbering.groups.values() if place in those)
        tellers = [reports[one] for one in (group if tier.scope == "Peers" else (place,))]
        had = [one for report in tellers if report is not None for one in report.checkpoints if one.tier == tier.name]
        steps += [{one.step for one in had if one.rank == rank} for rank in ranks]
    return set.intersection(*steps) if steps else set()


def _forget_the_future(u: Universe, box: Box, run: Run) -> None:
    """gangclient.memory deletes what the gang has gone back behind."""
    last = -1 if run.restore is None else run.restore.step
    peers = {tier.name for tier in disks.tiers(u.spec) if tier.scope == "Peers"}
    kept = (one for one in u.disk.files if one.tier not in peers or one.where != box.pod or one.step <= last)
    u.disk = replace(u.disk, files=tuple(kept))


def loaded(u: Universe, box: Box, run: Run) -> Box:
    """The box after its worker was started with this Run: what it loads is what the attempt restores."""
    _forget_the_future(u, box, run)
    if run.restore is None:
        require(not u.ghost.trunk or u.spec.checkpoint is None, 4, f"{box.pod} starts from the beginning alone")
        return box._replace(step=0, line=(), poisoned=False)
    step, base = run.restore.step, disks.cut(u.ghost.trunk, run.restore.step)
    tier = next(one for one in disks.tiers(u.spec) if one.name == run.restore.tier)
    if tier.scope == "Shared":
        require(disks.sees(u, box, tier.name, step) or u.ghost.gone_unheard, 4, f"{box.pod} starts and sees no {step}")
    ranks = [(u.group_of(box.member), process.rank) for process in run.processes if process.rank is not None]
    there = disks.loadable(u, u.status, tier, step)
    # A pod that was replaced meanwhile may still be told, and loads what lies where it lay.
    own = {rank: u.disk.at(tier.name, disks.where(tier, box.pod), step, rank) for rank in ranks}
    files = [there.get((box.pod, rank), own[rank]) for rank in ranks]
    lines = {None if file is None else file.line for file in files}
    if u.ghost.gone_unheard or tier.scope in {"Peers", "Process"}:  # The peer may be gone since: then the worker fails.
        lines.discard(None)
    require(lines <= {base}, 4, f"{box.pod} restores {lines} and not {base}")
    if tier.scope == "Process":
        u.power["an attempt restored what processes held"] += 1
        u.power["a rank got its state from another"] += any(
            file is not None and file.where != box.pod for file in files
        )
    sick = any(file is None or file.line is None or file.sick for file in files)
    return box._replace(step=step, line=base, poisoned=sick)
