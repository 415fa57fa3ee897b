"""Power: how often each mechanism of gangctl was reached in a run, and the least that makes the run worth anything.

It is seen from outside: from statuses that are stored, from the machines' steps, from the faults as they strike. Where
faults reach nothing every invariant holds; so a run fails if a mechanism is reached less often than its floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gangctl.api.incident import Incident, IncidentLevel
from gangctl.api.status import ENDED, Fencing, GangPhase, Status
from gangctl.core.facts.evidence import TIE_SECONDS
from gangctl.core.facts.gang import holders, incarnation
from gangctl.core.policy.cause import NAMED
from gangsidecar.supervisor import machine
from gangsidecar.wire import Report, Verb
from tests.simulation.invariants import is_lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.universe import Universe
    from tests.simulation.values import Box, Leader

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- power: begin -->", "<!-- power: end -->"
FLOORS: Final[dict[str, int]] = {
    "a member stopped its worker because it was cut off": 5,
    "an attempt started past a pod that is lost": 5,
    "an attempt started past a pod that has fenced itself": 5,
    "an attempt started from a checkpoint": 100,
    "an attempt fell back to an older step": 3,
    "a step was rejected": 3,
    "an attempt went back before what is not trusted": 3,
    "a restart in place": 100,
    "a restart at level Container": 5,
    "a restart at level Pod": 20,
    "a restart that was charged": 100,
    "a restart that was not charged": 50,
    "a pod was replaced": 50,
    "the whole gang was recreated": 5,
    "a spare took a rank": 10,
    "a barrier's deadline passed": 5,
    "a gang was held: BudgetExhausted": 3,
    "a gang gave up: NoProgress": 1,
    "a gang was held: NoRestorePoint": 5,
    "a gang that was held went on": 5,
    "a gang was suspended because a replacement took too long": 1,
    "a gang failed by a rule": 3,
    "it succeeded, as reports said": 5,
    "it succeeded, as a pod's last words said": 5,
    "it succeeded, as the status said": 5,
    "silence was told and did not count": 5,
    "the brake held": 5,
    "a restart in a row without a step waited": 5,
    "the longest time that members were told was lowered": 5,
    "a status was written while a member that is cut off goes by a longer time than is told now": 5,
    "a ping arrived after the controller had given its member up": 5,
    "a gang whose checkpoints were in memory was resumed": 5,
    "more ends were tied than a status names": 3,
    "a process went on in the next attempt": 50,
    "a parked process was ended": 10,
    "what parked processes had left behind was killed": 10,
    "a word of a process that has not parked was not believed": 10,
}
"""What ``make test`` must reach at least with its fixed seeds and rare lives.

Longer runs have no rare lives: they must reach what has a floor above 1.
"""
Struck = Mapping[tuple[str, str], int]
"""(Fault, phase) -> how often it struck in it."""
PHASES: Final = (*(phase for phase in GangPhase if phase not in ENDED),)
SHARE: Final = 0.8
"""So much of every kind of fault in every phase, but the first moment and the ends, is struck."""


def stored(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """Count what a status write shows."""
    u.power.update(_shown(u, leader, old, new))


def stepped(u: Universe, event: machine.Input, before: machine.State, after: machine.State) -> None:
    """Count what a machine does by itself."""
    if after.stop is not None and before.stop is None and isinstance(event, machine.Tick):
        directive = before.directive
        limit = None if directive is None or directive.verb is not Verb.RUN else directive.isolation_ms
        if limit is not None and u.now - before.pinged_at >= limit:
            u.power["a member stopped its worker because it was cut off"] += 1


def pinged(u: Universe, box: Box) -> None:
    """Count a ping that comes when nothing of its member is heard any more."""
    if not box.is_heard and box.procs:
        u.power["a ping arrived after the controller had given its member up"] += 1


def struck(u: Universe, what: str) -> None:
    """Count a fault, by the phase in which it strikes."""
    u.struck[what, str(u.status.phase)] += 1


def _shown(u: Universe, leader: Leader, old: Status, new: Status) -> Iterator[str]:
    if new.phase is not old.phase or new.attempt != old.attempt:
        yield from _of_change(u, leader, old, new)
    if len(new.rejected_steps) > len(old.rejected_steps):
        yield "a step was rejected"
    if new.base_incarnation > old.base_incarnation and old.phase is not GangPhase.SUSPENDED:
        yield "the whole gang was recreated"
    elif len(new.replaced) and new.replaced != old.replaced:
        yield "a pod was replaced"
    if new.barrier_timeouts > old.barrier_timeouts:
        yield "a barrier's deadline passed"
    if new.given_back and not old.given_back:
        yield "a gang was suspended because a replacement took too long"
    if "waits until" in new.message and "waits until" not in old.message:
        yield "a restart in a row without a step waited"
    if any(_goes_by_more(box, new.fencing) for box in u.boxes.values()):
        yield "a status was written while a member that is cut off goes by a longer time than is told now"
    if _is_lowered(old.fencing, new.fencing):
        yield "the longest time that members were told was lowered"
    for kind in _degraded(new) - _degraded(old):
        yield "the brake held" if kind in {"Braked", "GangsFailTogether"} else "silence was told and did not count"


def _of_change(u: Universe, leader: Leader, old: Status, new: Status) -> Iterator[str]:
    if new.phase is GangPhase.RUNNING:
        yield from _of_start(u, leader, old, new)
    if new.phase in {GangPhase.HELD, GangPhase.FAILED} and _reason(new) == "NoProgress":
        yield "a gang gave up: NoProgress"
    elif new.phase is GangPhase.HELD:
        yield f"a gang was held: {_reason(new)}"
    if old.phase is GangPhase.SUSPENDED and new.phase is GangPhase.PENDING and _was_in_memory(u, old):
        yield "a gang whose checkpoints were in memory was resumed"
    if old.phase is GangPhase.HELD and new.phase is GangPhase.GATHERING:
        yield "a gang that was held went on"
    if new.phase is GangPhase.FAILED and "FailedByRule" in {one.reason for one in new.conditions}:
        yield "a gang failed by a rule"
    if new.phase is GangPhase.SUCCEEDED:
        yield _of_success(u, leader, old)


def _of_start(u: Universe, leader: Leader, old: Status, new: Status) -> Iterator[str]:
    if new.restore_point is not None:
        yield "an attempt started from a checkpoint"
        if old.restore_point is not None and new.restore_point.step < old.restore_point.step:
            yield "an attempt fell back to an older step"
    if old.corrupt_since is not None and new.rejected_steps != old.rejected_steps:
        yield "an attempt went back before what is not trusted"
    if {entry.member for entry in new.ranks} - {entry.member for entry in old.ranks}:
        yield "a spare took a rank"
    incident = new.incidents[0] if new.incidents else None
    if incident is not None and incident.attempt == new.attempt and incident.settled:
        in_place = incident.level is IncidentLevel.PROCESS
        yield "a restart in place" if in_place else f"a restart at level {incident.level}"
        yield f"a restart that was {'charged' if incident.charged else 'not charged'}"
        if sum(_ended_with(heard.report, heard.at, incident) for heard in leader.heard) > NAMED:
            yield "more ends were tied than a status names"
    held = {(member, incarnation(new, member)) for member in holders(u.spec, new).values()}
    for uid, box in u.boxes.items():
        if (box.member, box.incarnation) not in held and not box.is_heard and box.machine is not None and box.sessions:
            if is_lost(u, uid):
                yield "an attempt started past a pod that is lost"
            elif uid in u.pods and u.spec.recovery.isolation_timeout_seconds is not None and box.cut_off:
                yield "an attempt started past a pod that has fenced itself"


def _of_success(u: Universe, leader: Leader, old: Status) -> str:
    attempt = old.attempt if old.phase is GangPhase.RUNNING else old.started_attempt
    told = {one.report.member for one in leader.heard for end in one.report.ends if end.attempt == attempt}
    said = {pod.member for pod in u.pods.values() if pod.last_words is not None}
    counted = set(holders(u.spec, old).values())
    if counted <= told:
        return "it succeeded, as reports said"
    return "it succeeded, as a pod's last words said" if counted <= told | said else "it succeeded, as the status said"


def _ended_with(report: Report, at: float, incident: Incident) -> bool:
    """Whether a worker of this member has ended by itself at the moment of the cause."""
    moments = [at - end.age_ms / 1000 for end in report.ends if end.attempt == incident.attempt - 1 and not end.stopped]
    return any(abs(moment - incident.cause.time) <= TIE_SECONDS for moment in moments)


def _was_in_memory(u: Universe, old: Status) -> bool:
    """Whether its newest complete step went with its pods."""
    tiers = () if u.spec.checkpoint is None else u.spec.checkpoint.tiers
    return u.ghost.was_whole and old.completed_step is not None and all(tier.scope != "Shared" for tier in tiers)


def _goes_by_more(box: Box, now: Fencing | None) -> bool:
    """Whether it doesn't hear of what is told now, and its worker may run and stop for longer."""
    said = None if box.machine is None else box.machine.directive
    if said is None or now is None or now.isolation_seconds is None or box.is_reached or not box.procs:
        return False
    longer = said.isolation_ms is None or said.isolation_ms > now.isolation_seconds * 1000
    return longer or said.grace_ms > now.stop_grace_seconds * 1000


def _is_lowered(old: Fencing | None, new: Fencing | None) -> bool:
    """Whether less has to be waited for a member that is cut off."""
    if old is None or new is None:
        return False
    before, after = old.longest_isolation_seconds, new.longest_isolation_seconds
    shorter = after is not None and (before is None or after < before)
    return shorter or new.longest_stop_grace_seconds < old.longest_stop_grace_seconds


def _degraded(status: Status) -> set[str]:
    return {one.reason for one in status.conditions if one.type == "Degraded" and one.status == "True"}


def _reason(status: Status) -> str:
    return next((one.reason for one in status.conditions if one.type == "Ready"), "")


def table(power: Mapping[str, int], struck: Struck, faults: tuple[str, ...]) -> list[str]:
    """Both tables in Markdown."""
    rows = ["| mechanism | reached | floor |", "| --- | ---: | ---: |"]
    names = [*FLOORS, *sorted(set(power) - set(FLOORS))]
    rows += [f"| {name} | {power.get(name, 0)} | {FLOORS.get(name, 0)} |" for name in names]
    rows += ["", f"| fault | {' | '.join(phase or 'New' for phase in PHASES)} |", f"| --- |{' ---: |' * len(PHASES)}"]
    for fault in faults:
        rows.append(f"| {fault} | {' | '.join(str(struck.get((fault, str(phase)), 0)) for phase in PHASES)} |")
    return rows


def missed(
    power: Mapping[str, int],
    struck: Mapping[tuple[str, str], int],
    faults: tuple[str, ...],
    *,
    rare: bool = True,
) -> list[str]:
    """What was reached less than its floor, in words; without rare lives: what was not reached, of floors above 1."""
    floors = {name: floor if rare else min(floor - 1, 1) for name, floor in FLOORS.items()}
    few = [f"{name}: {power.get(name, 0)} of {floor}" for name, floor in floors.items() if power.get(name, 0) < floor]
    pairs = [(fault, str(phase)) for fault in faults for phase in PHASES if phase is not GangPhase.NEW]
    reached = sum(struck.get(pair, 0) > 0 for pair in pairs)
    if reached < SHARE * len(pairs):
        few.append(f"{reached} of {len(pairs)} pairs of a fault and a phase were struck")
    return few


def write(lines: list[str]) -> None:
    """Put the tables into RESULTS.md, between the two markers."""
    before, _, rest = RESULTS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    RESULTS.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]))
