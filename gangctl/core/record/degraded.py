"""What a user should look at though the gang goes on: a hang that is only observed, silence, a slow rank.

The rule: it appears once, as the condition Degraded and a warning, and goes when it is over. Nothing must be restarted
because of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gangctl.api.escaping import escaped
from gangctl.api.gangjob import Launch, Role
from gangctl.api.model import sentence
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts import nodes, slowness
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.silence import counts_since, silent
from gangctl.core.facts.text import listed, moment
from gangctl.core.policy import degradation, rolling
from gangctl.core.policy.cause import describe
from gangctl.core.record.conditions import Warned, warned_of, warning
from gangctl.core.record.preloads import not_preloaded
from gangsidecar.wire import Progress

_WAITING: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING})
TOLD_SECONDS: Final = 60.0
"""A sidecar that only connects again is not told."""
SAID_AGAIN_SECONDS: Final = 30.0
"""Which members are concerned may change all the time: it is written at most this often."""


def degraded(gang: Gang, phase: GangPhase, hung: Fault | None = None) -> Warned | None:
    """The first thing to look at in this phase; None if there is nothing."""
    if phase not in {*_WAITING, GangPhase.RUNNING}:
        return None
    if gang.observed.brake.since is not None:
        return _braked(gang, phase, gang.observed.brake.since)
    if phase in _WAITING:
        return _deaf(gang) or _together(gang)
    if hung is not None:
        return Reason.HANG, f"{describe(hung)}; onHang is Observe, so nothing is restarted"
    return (
        _rolling(gang)
        or _silence(gang)
        or _ignored(gang)
        or _slow(gang)
        or _flags(gang)
        or _preloads(gang)
        or _nodes(gang)
    )


def is_news(gang: Gang, warned: Warned | None) -> bool:
    """Whether the stored condition says something else. That other members are concerned may wait a while."""
    stored = warning(gang.status)
    if warned is None or stored is None or stored.reason != warned[0]:
        return warned is not None or stored is not None
    return _is_outdated(gang, warned) and gang.now >= gang.status.observed_time + SAID_AGAIN_SECONDS


def next_silence(gang: Gang, warned: Warned | None) -> float | None:
    """When the next silence is to be told, or is to be told in other words than now. ``warned``: what is so now."""
    times = [since + TOLD_SECONDS for since, _ in silent(gang)]
    if warned is not None and _is_outdated(gang, warned):
        times.append(gang.status.observed_time + SAID_AGAIN_SECONDS)
    return min((time for time in times if time > gang.now), default=None)


def _is_outdated(gang: Gang, warned: Warned) -> bool:
    stored = warning(gang.status)
    return stored is not None and stored.message != sentence(warned[1])


def _braked(gang: Gang, phase: GangPhase, since: float) -> Warned | None:
    """The controller suspects itself, and members of this gang are silent, or it waits and its deadlines don't run."""
    members = sorted(member for _, member in silent(gang))
    if not members and phase not in _WAITING:
        return None
    brake = gang.observed.brake
    many, when = f"{brake.silent} of {brake.expected} members of all gangs were not", moment(since)
    text = (
        f"{listed(members)} {'is' if len(members) == 1 else 'are'} not heard, as {many} at {when}"
        if members
        else f"the gang waits without a deadline: {many} heard at {when}"
    )
    text = (
        f"{text}: the controller suspects its own connection, so silence and "
        "deadlines count for nothing and no pod is replaced for it; workers train on; check the controller's Service, "
        "NetworkPolicies, DNS and CA"
    )
    return Reason.BRAKED, text


def _rolling(gang: Gang) -> Warned | None:
    """A planned restart that waits for other gangs for too long."""
    text = rolling.stalled(gang)
    return (Reason.ROLLING_STALLED, text) if text else None


def _together(gang: Gang) -> Warned | None:
    """Many gangs fail at once for the reason of this gang's incident."""
    incident = gang.status.incidents[0] if gang.status.incidents else None
    if incident is None or incident.settled or incident.cause.reason not in gang.observed.brake.waves:
        return None
    text = (
        f"many gangs fail at once with {incident.cause.reason}; they are restarted in place, and no pod is replaced "
        "for it; look for what they share: storage, a registry, the network"
    )
    return Reason.GANGS_FAIL_TOGETHER, text


def _silence(gang: Gang) -> Warned | None:
    """Members that should be connected and are not heard."""
    since, members = _quiet(gang)
    if not members:
        return None
    one = len(members) == 1
    text = (
        f"{listed(members)} {'has' if one else 'have'} not been heard since {moment(since)}; workers train on, and "
        f"nothing is restarted or charged because of it; {_what_to_check(gang, members)}"
    )
    return Reason.MEMBERS_SILENT, text


def _deaf(gang: Gang) -> Warned | None:
    """Pods of a gang that waits run, and none of them can be heard."""
    since, members = _quiet(gang) if gang.hearing_since is None else (0.0, [])
    if all(counts_since(gang, gang.pods[member]) is not None for member in members):
        return None
    text = (
        f"{listed(members)} {'runs' if len(members) == 1 else 'run'}, and no pod of the gang has been heard since "
        f"{moment(since)}; no pod is replaced because of it; {_what_to_check(gang, members)}"
    )
    return Reason.NO_MEMBER_CONNECTS, text


def _quiet(gang: Gang) -> tuple[float, list[str]]:
    """Since when, and which members have been silent for so long that it is told."""
    found = [(since, member) for since, member in silent(gang) if gang.now >= since + TOLD_SECONDS]
    return min(found, default=(0.0, ""))[0], sorted(member for _, member in found)


def _what_to_check(gang: Gang, members: Sequence[str]) -> str:
    its = "its pod reaches" if len(members) == 1 else "their pods reach"
    ends = ((name, gang.pods[name].sidecar_end) for name in members if name not in gang.heard_by_member)
    told = next(
        (f"{name}'s sidecar ended at {moment(end.at)}: {end.said}" for name, end in ends if end is not None), ""
    )
    told = told or f"the log of {members[0]}'s sidecar gives the reason"
    return f"check whether {its} the controller (NetworkPolicy, DNS, Service, CA): {told}"


def _ignored(gang: Gang) -> Warned | None:
    """A first step that isn't the restore point's: the framework loaded something else.

    A framework that reports every tenth step is not to blame for its first report: it may be as far from the restore
    point as two of its reports are from each other.
    """
    if gang.spec.checkpoint is None:
        return None
    point = gang.status.restore_point
    step = 0 if point is None else point.step
    of_attempt = gang.by_progress.get(gang.status.attempt, ())
    if all(_fits(one, step) for heard in of_attempt if (one := heard.report.progress) is not None):
        return None
    for holder in gang.holders.values():
        report = gang.report(holder)
        progress = None if report is None else report.progress
        if progress is None or progress.attempt != gang.status.attempt:
            continue
        if not _fits(progress, step):
            told = "to begin" if point is None else f"to restore step {step}"
            text = f"{holder} was told {told}, and the first step it reported is {progress.first_step}"
            return Reason.RESTORE_POINT_IGNORED, f"{text}: let it load GANG_RESTORE_STEP, not what it finds"
    return None


def _fits(progress: Progress, start: int) -> bool:
    """Whether a rank that began at this step can have made this first report, as far as it is known."""
    first, every = progress.first_step, progress.every
    return first is None or (first >= start and (every is None or first <= start + max(1, every)))


def _slow(gang: Gang) -> Warned | None:
    """Members whose own part of a step takes longer than that of the others. By how much is rounded: it varies."""
    found = slowness.slow(gang, stays=warned_of(gang.status) == Reason.DEVICE_DEGRADED)
    if not found:
        return None
    told = listed(
        [
            f"rank {one.rank} of {one.member} on node {escaped(gang.pods[one.member].node)} "
            f"takes about {max(5, 5 * round(20 * one.excess))} % longer"
            for one in found
        ]
    )
    again = "it was moved before, so " if degradation.moved(gang).intersection(one.rank for one in found) else ""
    text = (
        f"{told} for its own part of a step than the other ranks of its role; {again}nothing is restarted because of it"
    )
    return Reason.DEVICE_DEGRADED, f"{text}; check the clocks, temperature and links of its devices"


def _preloads(gang: Gang) -> Warned | None:
    text = not_preloaded(gang)
    return (Reason.PRELOAD_FAILED, text) if text else None


def _nodes(gang: Gang) -> Warned | None:
    """What nodes show for which nothing is done now."""
    found = nodes.noted(gang)
    if not found:
        return None
    told = listed([f"the node of {member} shows {signal.what}" for member, signal in sorted(found)])
    return Reason.NODE_SUSPECT, f"{told}; nothing is restarted because of it"


def _flags(gang: Gang) -> Warned | None:
    """Torchrun's flags in the command beat the environment."""
    for role in gang.spec.roles:
        if role.launch is Launch.TORCHRUN:
            bad = _bad_flag(role)
            if bad:
                text = f"the command of role {role.name} has {escaped(bad)}, which beats the environment"
                return Reason.LAUNCHER_FLAGS, f"{text}: torchrun would restart by itself; remove the flag"
    return None


def _bad_flag(role: Role) -> str:
    arguments = (role.worker.model_extra or {}).get("args") or ()
    words = " ".join([*role.worker.command, *map(str, arguments)]).replace("=", " ").split()
    for name, value in pairwise(words):
        flag = name.replace("_", "-")
        if (flag == "--max-restarts" and value != "0") or (flag == "--nnodes" and ":" in value):
            return f"{name} {value}"
    return ""
