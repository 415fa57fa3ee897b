"""Why a gang restarted: the cause, what was decided and by what, what it cost, and whether it is the same again.

The rule: everything comes from the status, which keeps the last ten incidents. A restart that its user asked for is no
fault and says nothing about members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gangctl.api.gangjob import GangJob, Windowed
from gangctl.api.incident import Incident
from gangctl.api.names import LOCAL_NODE
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import default
from gangctl.core.policy.cause import describe
from gangctl.core.record.incidents import innermost
from gangctl.explain.costs import cost
from gangctl.explain.spans import EVIDENCE
from gangctl.explain.why.level import level_because
from gangctl.explain.why.other_rules import Alternative, alternatives
from gangctl.words.text import counted

NIGHT_SECONDS: Final = 12 * 3600.0
"""Restarts are compared with others of the last twelve hours."""
_REPEATED: Final = 2
_REJECTED: Final = 4
"""So many rejected steps are named."""


@dataclass(frozen=True, slots=True)
class DefaultRow:
    """What happens for the reason without a rule (gangctl classify --explain-defaults)."""

    evidence: str
    charged: bool
    level: str
    node_suspected: bool


@dataclass(frozen=True, slots=True)
class Took:
    """One phase of the restart."""

    phase: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the restarts of the night have in common."""

    what: str
    """member, node, cause or step: the same each time; everyMember: all ended alike; differentMembers; noStep: none was
    made between them."""
    value: str
    """The one that they have in common, if there is one."""
    count: int
    of: int
    means: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The last incident."""

    attempt: int
    time: float
    outcome: str
    reason: str
    cause: str
    evidence: tuple[str, ...]
    rule: str
    default: DefaultRow
    level: str
    level_because: str
    charged: bool
    settled: bool
    phases: tuple[Took, ...]
    milliseconds: int
    restored_step: int | None
    rejected_steps: tuple[str, ...]
    """Steps that are not used until they are written again."""
    lost_steps: int | None
    lost_steps_at_most: int | None
    """Where the framework reports only some steps."""
    lost_seconds: float | None
    cost: str
    """What became of the gang, and what it lost, in words; empty while it is not over."""
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The restarts of the last twelve hours, and the last incident in detail."""

    last: Restart
    count: int
    """Incidents of the last twelve hours, as far as the status has them."""
    charged: int
    budget: str
    milliseconds: int
    """Of all their phases together: from faults to first steps, where these came."""
    first_steps: int
    """Incidents that led to a first step."""
    lost_steps: int | None
    lost_seconds: float | None
    patterns: tuple[Pattern, ...]


def restarts(job: GangJob, now: float) -> Restarts | None:
    """The restarts of a gang; None if it has had no incident."""
    found = job.status.incidents
    if not found:
        return None
    night = [one for one in found if one.time > now - NIGHT_SECONDS] or [found[0]]
    steps = [one.lost_steps for one in night if one.lost_steps is not None]
    lost = [one.lost_seconds for one in night if one.lost_seconds is not None]
    return Restarts(
        last=_restart(job, found[0]),
        count=len(night),
        charged=sum(one.charged for one in night),
        budget=_budget(job),
        milliseconds=sum(each.milliseconds for one in night for each in phases(one)),
        first_steps=sum(one.milliseconds.first_step is not None for one in night),
        lost_steps=sum(steps) if steps else None,
        lost_seconds=sum(lost) if lost else None,
        patterns=tuple(_patterns(job, [one for one in night if one.cause.reason != Reason.RESTART_REQUESTED])),
    )


def phases(incident: Incident) -> tuple[Took, ...]:
    """The phases that took place, in order of time."""
    took, is_end = incident.milliseconds, incident.outcome in {"Failed", "Held"}
    named = {
        "detect": took.detect,
        "stop": took.stop,
        "replace": took.replace,
        "back-off": took.back_off,
        EVIDENCE if is_end else "barrier": took.barrier,
        "start": took.start,
        "first step": took.first_step,
    }
    return tuple(Took(name, each) for name, each in named.items() if each is not None)


def _restart(job: GangJob, incident: Incident) -> Restart:
    cause = incident.cause
    row = default(cause.reason)
    took = phases(incident)
    return Restart(
        attempt=incident.attempt,
        time=incident.time,
        outcome=incident.outcome,
        reason=cause.reason,
        cause=describe(cause),
        evidence=tuple(_evidence(incident)),
        rule=": ".join(filter(None, (cause.rule, cause.why))) or "no rule matches",
        default=DefaultRow(row.strength.name.capitalize(), row.charged, str(row.level), row.against_node),
        level=str(incident.level),
        level_because=level_because(job, incident),
        charged=incident.charged,
        settled=incident.settled,
        phases=took,
        milliseconds=sum(each.milliseconds for each in took),
        restored_step=incident.restored_step,
        rejected_steps=tuple(f"step {one.step} of tier {one.tier}" for one in job.status.rejected_steps[-_REJECTED:]),
        lost_steps=incident.lost_steps,
        lost_steps_at_most=incident.lost_steps_at_most,
        lost_seconds=incident.lost_seconds,
        cost=cost(incident),
        alternatives=alternatives(job, incident),
    )


def _evidence(incident: Incident) -> Iterator[str]:
    cause = incident.cause
    if cause.node and cause.node != LOCAL_NODE:
        yield f"node {cause.node}"
    if cause.device:
        yield f"device {cause.device}"
    if cause.alike:
        yield "every member ended like this at that moment, so no pod is suspected"
    elif others := [name for name in cause.tied if name != cause.member]:
        yield f"ended at the same moment: {', '.join(others)}"
    if incident.kept_signal is not None:
        yield f"{incident.kept_signal.member} did not end on SIGTERM"
    if incident.stacks is not None:
        where = innermost(incident.stacks)
        yield f"{incident.stacks.member} was in {where}" if where else f"stacks of {incident.stacks.member} were taken"


def _budget(job: GangJob) -> str:
    budget, used = job.spec.recovery.budget, job.status.restarts.in_window
    if not isinstance(budget, Windowed):
        return f"{counted(job.status.restarts.counted, 'restart')} charged, the budget is unlimited"
    return f"{used} of {budget.max_restarts} charged restarts in {budget.window_seconds} s"


def _patterns(job: GangJob, night: Sequence[Incident]) -> Iterator[Pattern]:
    """What at least two, and more than half, have in common; the node only if several members were on it."""
    count = len(night)
    if count < _REPEATED:
        return
    alike = sum(one.cause.alike for one in night)
    if alike * 2 > count:
        means = "no member is to blame: look at the script, its arguments and its data"
        yield Pattern("everyMember", "", alike, count, means)
    member = _most(["" if one.cause.alike else one.cause.member for one in night])
    node = _most(["" if one.cause.alike or one.cause.node == LOCAL_NODE else one.cause.node or "" for one in night])
    how = _most([_how(one) for one in night])
    step = _most(["" if one.restored_step is None else str(one.restored_step) for one in night])
    if member:
        means = "its pod or node is faulty, or its share of the data: gangctl replaces the pod (recovery.replaceAfter)"
        yield Pattern("member", *member, count, means)
    elif not alike and len({one.cause.member for one in night if one.cause.member}) == count:
        means = "a bug of the script, or what the members share: the network, storage, a registry"
        yield Pattern("differentMembers", "", count, count, means)
    if node and (not member or len({one.cause.member for one in night if one.cause.node == node[0]}) > 1):
        means = "the node is suspect: kubectl cordon it, and look at its devices, driver and kernel log"
        yield Pattern("node", *node, count, means)
    if how:
        yield Pattern("cause", *how, count, "one rule of podFailurePolicy could decide for all of them")
    if step and any(one.lost_steps == 0 for one in night):
        means = "the gang fails just after that step: look at the data there and at this checkpoint"
        yield Pattern("step", *step, count, means)
    stuck = {entry.attempt for entry in job.status.ledger if entry.progressed is False}
    without = sum(one.attempt in stuck for one in night)
    if without * 2 > count:
        means = "the gang does not get to its first step: look at start-up and loading"
        yield Pattern("noStep", "", without, count, means)


def _how(incident: Incident) -> str:
    cause = incident.cause
    if cause.exit_code is not None:
        return f"{cause.reason}, exit code {cause.exit_code}"
    return f"{cause.reason}, {cause.signal}" if cause.signal else cause.reason


def _most(values: Sequence[str]) -> tuple[str, int] | None:
    """The value that more than half have, and at least two."""
    value, count = Counter(values).most_common(1)[0]
    return (value, count) if value and count >= _REPEATED and 2 * count > len(values) else None
