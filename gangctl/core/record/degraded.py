"""Degraded: what a user should look at though the gang goes on.

What a user should look at though the gang goes on: a hang that is only observed, silence, a slow rank.

The rule: it appears once, as the condition Degraded and a warning, and goes when it is over. Nothing must be restarted
because of it.

Modules that a role names for its template, and that the template could not import.

The rule: it is told from the first start on, as long as the attempt runs that was started without them. Nothing must
be restarted because of it: a worker that needs the module imports it itself, and fails by itself if it can't.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from gangctl.api.gangjob import Launch, Role
from gangctl.api.model import escaped
from gangctl.api.reasons import Reason
from gangctl.api.roles import ForkStart, ModulesPreload
from gangctl.api.shell import OPAQUE, PARENTHESES
from gangctl.api.status import GangPhase
from gangctl.core.facts import fitness, progress
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.fitness import counts_since, silent
from gangctl.core.facts.gang import Gang, once
from gangctl.core.policy import growth, pods, quota, requests
from gangctl.core.policy.cause import describe
from gangctl.core.record.conditions import Warned, warned_of, warning
from gangctl.words import warnings
from gangctl.words.message import Message
from gangctl.words.warnings import modules_not_preloaded
from gangsidecar.wire import WarmStart

# What a user should look at though the gang goes on


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
        return Reason.HANG, warnings.hang_observed(describe(hung))
    return (
        _rolling(gang)
        or _smaller(gang)
        or _silence(gang)
        or _ignored(gang)
        or _slow(gang)
        or _commands(gang)
        or _preloads(gang)
        or _late_forks(gang)
        or _nodes(gang)
    )


def is_news(gang: Gang, warned: Warned | None) -> bool:
    """Return whether the stored condition says something else. That other members are concerned may wait a while."""
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
    return warning(gang.status) is not None and not warned[1].is_same(gang.status.warning)


def _braked(gang: Gang, phase: GangPhase, since: float) -> Warned | None:
    """The controller suspects itself, and members of this gang are silent, or it waits and its deadlines don't run."""
    members = sorted(member for _, member in silent(gang))
    if not members and phase not in _WAITING:
        return None
    brake = gang.observed.brake
    return Reason.BRAKED, warnings.braked(members, brake.silent, brake.expected, since)


def _rolling(gang: Gang) -> Warned | None:
    """A planned restart that waits for other gangs for too long."""
    text = requests.stalled(gang) if gang.status.restart_wait_time is not None else None
    if text is None:
        return None
    return Reason.ROLLING_STALLED, text


def _smaller(gang: Gang) -> Warned | None:
    """Fewer members than are wanted."""
    text = (quota.smaller(gang) or growth.smaller(gang)) if gang.is_smaller else None
    if text is None:
        return None
    return Reason.SMALLER, text


def _together(gang: Gang) -> Warned | None:
    """Many gangs fail at once for the reason of this gang's incident."""
    incident = gang.status.incidents[0] if gang.status.incidents else None
    if incident is None or incident.settled or incident.cause.reason not in gang.observed.brake.waves:
        return None
    return Reason.GANGS_FAIL_TOGETHER, warnings.gangs_fail_together(incident.cause.reason)


def _silence(gang: Gang) -> Warned | None:
    """Members that should be connected and are not heard."""
    since, members = _quiet(gang)
    if not members:
        return None
    return Reason.MEMBERS_SILENT, warnings.members_silent(members, since, _said_by_sidecar(gang, members))


def _deaf(gang: Gang) -> Warned | None:
    """Pods of a gang that waits run, and none of them can be heard."""
    since, members = _quiet(gang) if gang.hearing_since is None else (0.0, [])
    if all(counts_since(gang, gang.pods[member]) is not None for member in members):
        return None
    return Reason.NO_MEMBER_CONNECTS, warnings.no_member_connects(members, since, _said_by_sidecar(gang, members))


def _quiet(gang: Gang) -> tuple[float, list[str]]:
    """Since when, and which members have been silent for so long that it is told."""
    found = [(since, member) for since, member in silent(gang) if gang.now >= since + TOLD_SECONDS]
    return min(found, default=(0.0, ""))[0], sorted(member for _, member in found)


def _said_by_sidecar(gang: Gang, members: Sequence[str]) -> Message:
    ends = ((name, gang.pods[name].sidecar_end) for name in members if name not in gang.heard_by_member)
    said = (warnings.sidecar_says(name, end.at, end.said) for name, end in ends if end is not None)
    return next(said, warnings.log_says(members[0]))


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
    firsts = {(one.first_step, one.every) for heard in of_attempt if (one := heard.report.progress) is not None}
    if all(_fits(first, every, step) for first, every in firsts):
        return None
    for holder in gang.holders.values():
        report = gang.report(holder)
        progress = None if report is None else report.progress
        if progress is None or progress.attempt != gang.status.attempt:
            continue
        if not _fits(progress.first_step, progress.every, step):
            told = None if point is None else step
            return Reason.RESTORE_POINT_IGNORED, warnings.restore_point_ignored(holder, told, progress.first_step)
    return None


def _fits(first: int | None, every: int | None, start: int) -> bool:
    """Whether a rank that began at this step can have made this first report, as far as it is known."""
    return first is None or (first >= start and (every is None or first <= start + max(1, every)))


def _slow(gang: Gang) -> Warned | None:
    """Members whose own part of a step takes longer than that of the others. By how much is rounded: it varies."""
    found = progress.slow_members(gang, stays=warned_of(gang.status) == Reason.DEVICE_DEGRADED)
    if not found:
        return None
    ranks = [
        warnings.slow_rank(
            each.member, each.rank, escaped(gang.pods[each.member].node), max(5, 5 * round(20 * each.excess))
        )
        for each in found
    ]
    moved_before = bool(pods.moved_ranks(gang).intersection(each.rank for each in found))
    return Reason.DEVICE_DEGRADED, warnings.ranks_slow(ranks, moved_before)


def _preloads(gang: Gang) -> Warned | None:
    text = not_preloaded(gang)
    if text is None:
        return None
    return Reason.PRELOAD_FAILED, text


def _late_forks(gang: Gang) -> Warned | None:
    """Members whose forked workers make no first step, though executed ones did."""
    late = {holder: warm.late_after_seconds for holder, warm in _warm_starts(gang) if warm.late_after_seconds > 0}
    return (Reason.FORKS_LATE, warnings.forks_late(sorted(late), max(late.values()))) if late else None


def _nodes(gang: Gang) -> Warned | None:
    """What nodes show for which nothing is done now."""
    found = fitness.noted(gang)
    if not found:
        return None
    signals = [warnings.node_of_member_shows(member, signal.what) for member, signal in sorted(found)]
    return Reason.NODE_SUSPECT, warnings.nodes_show(signals)


def _commands(gang: Gang) -> Warned | None:
    """Torchrun's flags in the command beat the environment; a pipeline hides how a worker ends."""
    for role in gang.spec.roles:
        bad = _bad_flag(role) if role.launch is Launch.TORCHRUN else ""
        if bad:
            return Reason.LAUNCHER_FLAGS, warnings.launcher_flag(role.name, escaped(bad))
        if hides_failure(_words(role)):
            return Reason.PIPELINE_HIDES_FAILURE, warnings.pipeline_hides_failure(role.name)
    return None


def _words(role: Role) -> tuple[str, ...]:
    return (*role.worker.command, *map(str, (role.worker.model_extra or {}).get("args") or ()))


_SHELLS: Final = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_LONGEST: Final = 1 << 14
_OPAQUE: Final = re.compile(OPAQUE, re.DOTALL)
_GROUPED: Final = re.compile(rf"{PARENTHESES}|`[^`]*`")
_NO_END: Final = re.compile(r"[<>]&|&>|\|\s*\n")
"""Where a statement goes on."""
_AFTERWARDS: Final = re.compile(r"exit( \$\?)?|wait")


def hides_failure(words: tuple[str, ...]) -> bool:
    """Return whether these words run a shell's script whose last statement is a pipeline, without ``pipefail``.

    Where that isn't plain, as with a loop at the end or in a long script, they don't.
    """
    shells = [at for at, word in enumerate(words) if word.rpartition("/")[2] in _SHELLS]
    options = [at for at, word in enumerate(words) if shells and at > shells[0] and re.fullmatch(r"-[a-z]*c", word)]
    script = words[options[0] + 1] if options and options[0] + 1 < len(words) else ""
    if len(script) > _LONGEST or any("pipefail" in word for word in words) or "PIPESTATUS" in script:
        return False
    return _is_piped(script)


@lru_cache(maxsize=64)
def _is_piped(script: str) -> bool:
    plain = _GROUPED.sub("x", _OPAQUE.sub("x", script))
    plain = _NO_END.sub(lambda found: "|" if found[0].startswith("|") else " ", plain.replace("|&", "|"))
    statements = [one.strip() for one in re.split(r"[;&\n]+|\|\|", plain)]
    return "|" in next((one for one in reversed(statements) if one and not _AFTERWARDS.fullmatch(one)), "")


def _bad_flag(role: Role) -> str:
    words = " ".join(_words(role)).replace("=", " ").split()
    for name, value in pairwise(words):
        flag = name.replace("_", "-")
        if (flag == "--max-restarts" and value != "0") or (flag == "--nnodes" and ":" in value):
            return f"{name} {value}"
    return ""


# Modules that a role names for its template, and that the template could not import


def not_preloaded(gang: Gang) -> Message | None:
    """Return the first module that a role names and the template of a running member could not import."""
    starts = [role.start for role in gang.spec.roles]
    if not any(isinstance(one, ForkStart) and isinstance(one.preload, ModulesPreload) for one in starts):
        return None
    lacking = ((holder, warm.not_imported) for holder, warm in _warm_starts(gang) if warm.not_imported)
    holder, modules = next(lacking, ("", ""))
    return modules_not_preloaded(holder, escaped(modules)) if modules else None


@once
def _warm_starts(gang: Gang) -> list[tuple[str, WarmStart]]:
    """How the members that run were started for this attempt, as far as they report it."""
    heard, attempt = gang.heard_by_member, gang.status.attempt
    return [
        (holder, warm)
        for holder in gang.holders.values()
        if (one := heard.get(holder)) is not None
        and (warm := one.report.warm_start) is not None
        and warm.attempt == attempt
    ]
