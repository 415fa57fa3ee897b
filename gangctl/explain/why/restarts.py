"""Explains why a gang restarted: what decided it, what other rules would have done, and whether it is the same again.

The rule: everything comes from the status, which keeps the last ten incidents. A restart that its user asked for isn't
a fault and says nothing about members. For another rule, one that matches exactly this cause is put before the others,
and the policy is asked with the controller's own functions; what would have come to the same is left out. Neither
data nor a checkpoint is blamed where the ledger doesn't know whether a step was made: others may have finished.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gangctl.api.gangjob import GangJob, Windowed
from gangctl.api.incident import Cause, Incident, IncidentLevel
from gangctl.api.model import changed
from gangctl.api.names import LOCAL_NODE, SIGNALS
from gangctl.api.policy import Action, OnReason, PodFailurePolicy, Rule
from gangctl.api.reasons import Reason
from gangctl.api.roles import number_places
from gangctl.core.facts.evidence import Fault, Strength, default, strength
from gangctl.core.facts.progress import attempt_with_workers, recorded_places
from gangctl.core.policy.recovery import highest_level, ledger_in_window, suspected_member
from gangctl.explain.forecast import judge
from gangctl.explain.why.findings import many
from gangctl.story.incidents import IncidentStory, incident_story
from gangctl.words.text import counted
from gangsidecar.wire import Level

NIGHT_SECONDS: Final = 12 * 3600.0
"""Restarts are compared with others of the last twelve hours."""
_REPEATED: Final = 2
_OTHERS: Final[tuple[dict[str, str], ...]] = (
    {"action": "Count", "level": "Process"},
    {"action": "Count", "level": "Pod"},
    {"action": "Ignore", "level": "Process"},
    {"action": "FailJob"},
)
_MOST_BEFORE: Final = 19
"""A policy has at most 20 rules."""
_REASONS: Final = frozenset(Reason)
_REJECTED: Final = 4
"""Rejected steps that are named."""


@dataclass(frozen=True, slots=True)
class DefaultRow:
    """The answer to the reason without a rule (gangctl classify --explain-defaults)."""

    evidence: str
    charged: bool
    level: str
    node_suspected: bool


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another rule, and what it would have done."""

    rule: str
    """In one line of YAML, for podFailurePolicy.rules."""
    action: str
    level: str
    charged: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """Something that the restarts of the night have in common."""

    what: str
    """member, node, cause or step: the same each time; everyMember: all ended alike; differentMembers; noStep: none was
    made between them."""
    value: str
    """The one that they have in common, if there is one."""
    count: int
    of: int
    means: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRestart:
    """The last incident, and why it was decided so."""

    incident: IncidentStory
    rule: str
    """The rule that matched and why, or that no rule matches."""
    default: DefaultRow
    level_because: str
    rejected_steps: tuple[str, ...] = ()
    """Steps that are not used until they are written again."""
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartHistory:
    """The restarts of the last twelve hours, and the last incident in detail."""

    last: LastRestart
    count: int
    """Incidents of the last twelve hours, as far as the status or its ledger has them."""
    complete: bool
    """False if there may have been more."""
    detailed: int
    """Those of them that the status has in detail: what follows but the budget is of them."""
    charged: int
    """Of all."""
    budget: str
    milliseconds: int
    """The sum of all phases: from faults to first steps, where these came."""
    first_steps: int
    """Incidents that led to a first step."""
    lost_steps: int | None = None
    lost_steps_at_most: int | None = None
    lost_unknown: bool
    """Whether there is a restart of which it isn't known."""
    lost_seconds: float | None = None
    compared: int
    """Those of them that no user asked for: what they have in common is in ``patterns``."""
    patterns: tuple[Pattern, ...] = ()


def gang_restarts(job: GangJob, now: float) -> RestartHistory | None:
    """The restarts of a gang; None if it has had no incident."""
    found = job.status.incidents
    if not found:
        return None
    restarts, since = job.status.restarts, now - NIGHT_SECONDS
    night = [one for one in found if one.time > since] or [found[0]]
    charged = {entry.attempt: entry.charged for entry in job.status.ledger if entry.time > since}
    charged |= {one.attempt: one.charged for one in night}
    steps = [one for one in night if one.lost_steps is not None]
    faults = [one for one in night if one.cause.reason != Reason.RESTART_REQUESTED]
    lost = [one.lost_seconds for one in night if one.lost_seconds is not None]
    return RestartHistory(
        last=_last(job, found[0], now),
        count=len(charged),
        complete=len(night) < len(found) or len(charged) >= restarts.counted + restarts.uncounted,
        detailed=len(night),
        charged=sum(charged.values()),
        budget=_budget(job, now),
        milliseconds=sum(each for one in night for _, each in one.milliseconds if each is not None),
        first_steps=sum(one.milliseconds.first_step is not None for one in night),
        lost_steps=sum(one.lost_steps or 0 for one in steps) if steps else None,
        lost_steps_at_most=sum(one.lost_steps_at_most or one.lost_steps or 0 for one in steps) if steps else None,
        lost_unknown=any(one.lost_steps is None and one.outcome == "Restarted" for one in night),
        lost_seconds=sum(lost) if lost else None,
        compared=len(faults),
        patterns=tuple(_patterns(job, faults)),
    )


def _last(job: GangJob, incident: Incident, now: float) -> LastRestart:
    cause, row = incident.cause, default(incident.cause.reason)
    return LastRestart(
        incident=incident_story(job, incident, now),
        rule=": ".join(filter(None, (cause.rule, cause.why))) or "no rule matches",
        default=DefaultRow(row.strength.name.capitalize(), row.charged, str(row.level), row.against_node),
        level_because=_level_because(job, incident),
        rejected_steps=tuple(f"step {one.step} of tier {one.tier}" for one in job.status.rejected_steps[-_REJECTED:]),
        alternatives=_alternatives(job, incident),
    )


def _budget(job: GangJob, now: float) -> str:
    own, group = job.spec.recovery.budget, job.spec.replica_group

    def used(budget: Windowed) -> str:
        count = sum(entry.charged and entry.time > now - budget.window_seconds for entry in job.status.ledger)
        return f"{count} of {budget.max_restarts} charged restarts in {budget.window_seconds} s"

    text = f"{counted(job.status.restarts.counted, 'restart')} charged, the budget is unlimited"
    text = used(own) if isinstance(own, Windowed) else text
    shared = None if group is None else group.budget
    return text if shared is None else f"{text}; of its replica group's budget, it has used {used(shared)}"


def _patterns(job: GangJob, night: Sequence[Incident]) -> Iterator[Pattern]:
    """Whatever at least two, and more than half, have in common; the node only if several members were on it."""
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
        done = _finished_before(job, member[0])
        means = (
            f"{many(done)} had finished: see what it still needs of {'that' if len(done) == 1 else 'those'}"
            if done
            else "its pod or node is faulty, or its share of the data: gangctl replaces the pod (recovery.replaceAfter)"
        )
        yield Pattern("member", *member, count, means)
    elif not alike and len({one.cause.member for one in night if one.cause.member}) == count:
        means = "a bug of the script, or what the members share: the network, storage, a registry"
        yield Pattern("differentMembers", "", count, count, means)
    if node and (not member or len({one.cause.member for one in night if one.cause.node == node[0]}) > 1):
        means = "the node is suspect: kubectl cordon it, and look at its devices, driver and kernel log"
        yield Pattern("node", *node, count, means)
    if how:
        yield Pattern("cause", *how, count, "one rule of podFailurePolicy could decide for all of them")
    unknown = {entry.attempt for entry in job.status.ledger if entry.progressed is None}
    if step and any(one.lost_steps == 0 for one in night) and not any(one.attempt in unknown for one in night):
        means = "the gang fails just after that step: look at the data there and at this checkpoint"
        yield Pattern("step", *step, count, means)
    stuck = {entry.attempt for entry in job.status.ledger if entry.progressed is False}
    without = sum(one.attempt in stuck for one in night)
    if without * 2 > count:
        means = "the gang does not get to its first step: look at start-up and loading"
        yield Pattern("noStep", "", without, count, means)


def _finished_before(job: GangJob, member: str) -> list[str]:
    """The members of its process group that have finished the newest attempt that had workers, and it has not."""
    done = recorded_places(job.status, attempt_with_workers(job.status))
    groups = number_places(job.spec.roles).groups.values()
    return [one for places in groups if member in places and member not in done for one in places if one in done]


def _how(incident: Incident) -> str:
    cause = incident.cause
    if cause.exit_code is not None:
        return f"{cause.reason}, exit code {cause.exit_code}"
    return f"{cause.reason}, {cause.signal}" if cause.signal else cause.reason


def _most(values: Sequence[str]) -> tuple[str, int] | None:
    """The value that more than half have, and at least two."""
    value, count = Counter(values).most_common(1)[0]
    return (value, count) if value and count >= _REPEATED and 2 * count > len(values) else None


def _level_because(job: GangJob, incident: Incident) -> str:
    """The reason for the level, as the end of a sentence after ``because``.

    The fault's own level, the default of its reason and the rule that matched ask first; more than that comes of
    repetition (``core/policy/recovery.py``) or of a barrier that could not be reached.
    """
    cause, level, least = incident.cause, incident.level, default(incident.cause.reason).level
    if level is not highest_level(level, cause.level, least):
        return _less(incident)
    if level is least:
        return f"that is the default of {cause.reason}"
    if level is cause.level:
        return f"rule {cause.rule} asks for it" if cause.rule else "the fault itself asks for it"
    if level is IncidentLevel.GANG:
        return "too many members needed a new pod, or did not get ready in time (recovery.barrierTimeoutSeconds)"
    if level is IncidentLevel.POD:
        return _repeated(job, incident)
    return "stronger evidence asked for it before"


def _less(incident: Incident) -> str:
    if incident.cause.reason == Reason.RESTORE_POINT_MISSING:
        return "most members did not see the checkpoint, so no pod is to blame"
    if incident.cause.reason == Reason.CORRUPTION:
        return "most members were said to compute wrongly, so no pod is to blame"
    if incident.cause.alike:
        return "every member ended alike, so no pod is to blame"
    return "other evidence came first"


def _repeated(job: GangJob, incident: Incident) -> str:
    cause, after, checkpoint = incident.cause, job.spec.recovery.replace_after, job.spec.checkpoint
    ledger = ledger_in_window(job.spec, job.status.ledger, incident.time)
    member, number = suspected_member(cause)
    before = [one for one in ledger if (one.member, one.incarnation) == (member, number)]
    times = 1 + sum(one.attempt < incident.attempt for one in before)
    if times >= after and strength(cause) is not Strength.REQUEST:
        return f"it was the {_ordinal(times)} fault of {member} with this pod (recovery.replaceAfter: {after})"
    if checkpoint is not None:
        return (
            "the gang failed again and again from one restore point without progress "
            f"(checkpoint.fallbackAfter: {checkpoint.fallback_after})"
        )
    return "stronger evidence asked for it before"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _alternatives(job: GangJob, incident: Incident) -> tuple[Alternative, ...]:
    """Other answers to the incident's cause; none if no rule can match it."""
    cause = incident.cause
    matcher = _matcher(cause)
    if matcher is None or cause.reason not in _REASONS or not incident.settled:
        return ()
    fault = _fault(cause)
    happened = (cause.action or Action.COUNT, incident.level)
    return tuple(_tried(job, fault, matcher, happened))


def _tried(
    job: GangJob, fault: Fault, matcher: dict[str, Any], happened: tuple[Action, IncidentLevel]
) -> Iterator[Alternative]:
    before, seen = job.spec.pod_failure_policy.rules, {happened}
    for other in _OTHERS:
        written = {**other, **matcher}
        policy = PodFailurePolicy(rules=(Rule.model_validate(written), *before[:_MOST_BEFORE]))
        spec = changed(job.spec, pod_failure_policy=policy)
        said, level = judge(changed(job, spec=spec), fault)
        if (said.action, level) in seen:
            continue
        seen.add((said.action, level))
        yield Alternative(
            json.dumps(written).replace('"', ""),
            str(said.action),
            str(level),
            said.action is Action.COUNT,
            _outcome(said.action, level, fault.member, job.spec.recovery.evidence_window_seconds),
        )


def _outcome(action: Action, level: IncidentLevel, member: str, window: int) -> str:
    if action is Action.FAIL_JOB:
        return f"the gang would have failed{f', {window} s later if no stronger evidence came' if window else ''}"
    charged = "charged" if action is Action.COUNT else "not charged"
    match level:
        case IncidentLevel.GANG:
            return f"every pod would have been replaced, {charged}"
        case IncidentLevel.POD:
            return f"the pod of {member or 'the member'} would have been replaced, {charged}"
        case _:
            return f"every worker would have restarted inside its pod, {charged}"


def _matcher(cause: Cause) -> dict[str, Any] | None:
    """A matcher for exactly this cause."""
    if cause.reason in set(OnReason):
        return {"onReasons": [cause.reason]}
    if cause.exit_code:
        return {"onExitCodes": {"operator": "In", "values": [cause.exit_code]}}
    if cause.signal in SIGNALS:
        return {"onSignals": [cause.signal]}
    return None


def _fault(cause: Cause) -> Fault:
    return Fault(
        Reason(cause.reason),
        cause.member,
        cause.time,
        incarnation=cause.incarnation,
        rank=cause.rank,
        exit_code=cause.exit_code,
        signal=None if cause.signal is None else SIGNALS.get(cause.signal),
        device=cause.device,
        node=cause.node,
        level=Level.CONTAINER if cause.level is IncidentLevel.CONTAINER else Level.PROCESS,
        message=cause.message,
    )
