"""Which attempt may speak to the framework API now: what a sidecar concludes from the messages that it relays. Pure.

The rule: attempt N is spoken for from the Run(N) that its session was given until the supervisor says that its worker
is gone. A stop that was ordered doesn't end it: the grace is there for a last checkpoint. The supervisor has the last
word on every call; what is said here is said so that the framework gets a clear answer at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from gangsidecar.wire import Phase, Verb

if TYPE_CHECKING:
    from gangsidecar import wire


class Verdict(StrEnum):
    """What a call that carries an attempt finds."""

    CURRENT = "Current"
    """Its worker runs."""
    ENDING = "Ending"
    """Its worker is being stopped: checkpoints still count, nothing else does."""
    OVER = "Over"
    """A newer attempt is current."""
    ABSENT = "Absent"
    """No worker of it is here: it has not begun, or all has ended."""
    UNKNOWN = "Unknown"
    """No supervisor has spoken to this sidecar yet."""


@dataclass(frozen=True)
class Standing:
    """What was heard last. ``directive`` is the newest by (attempt, Hold < Run < Finish), not the last to arrive."""

    report: wire.Report | None = None
    directive: wire.Directive | None = None
    heard_ms: int = 0
    """When ``directive`` first arrived; with its grace this is a stop's deadline."""
    run: wire.Directive | None = None
    """The newest Run that names the session of ``report``."""
    ran: int | None = None
    """The newest attempt that this session is known to have run; None = not known (a sidecar that began later)."""


@dataclass(frozen=True)
class Stop:
    """The worker of ``attempt`` is being stopped."""

    attempt: int
    reason: str
    planned: bool
    left_ms: int
    """Until SIGKILL; 0 when it is over."""


def told(standing: Standing, report: wire.Report) -> Standing:
    """The supervisor has spoken."""
    old = standing.report
    if old is not None and old.session != report.session:
        standing = replace(standing, run=None, ran=None)
    if report.phase is Phase.RUNNING:
        standing = replace(standing, ran=report.attempt)
    return replace(standing, report=report)


def heard(standing: Standing, directive: wire.Directive, now_ms: int) -> Standing:
    """The controller has spoken. An older directive changes nothing, as it changes nothing for the supervisor."""
    report = standing.report
    if report is None or (directive.gang, directive.pod) != (report.gang, report.pod):
        return standing
    if directive.run is not None and directive.run.session == report.session and _newer(directive, standing.run):
        standing = replace(standing, run=directive, ran=max(directive.attempt, standing.ran or 0))
    if not _newer(directive, standing.directive):
        return standing
    return replace(standing, directive=directive, heard_ms=now_ms)


def speaking(standing: Standing) -> int | None:
    """The attempt whose worker may still be there; None = no worker is."""
    report, run = standing.report, standing.run
    if report is None:
        return None
    match report.phase:
        case Phase.RUNNING:
            return report.attempt
        case Phase.READY:  # The worker may call before its supervisor has said Running.
            return run.attempt if run is not None and run.attempt == report.attempt else None
        case Phase.STOPPING | Phase.STUCK:
            return standing.ran
        case _:
            return None


def current(standing: Standing) -> int:
    """The attempt that a caller of another one is told; 0 before the first."""
    attempt = speaking(standing)
    if attempt is not None:
        return attempt
    return 0 if standing.report is None else standing.report.attempt


def ending(standing: Standing) -> bool:
    """Was the worker that speaks ordered to stop?"""
    if standing.report is not None and standing.report.phase in {Phase.STOPPING, Phase.STUCK}:
        return True
    directive, attempt = standing.directive, speaking(standing)
    if directive is None or attempt is None:
        return False
    return directive.attempt > attempt or (directive.attempt == attempt and directive.verb is Verb.FINISH)


def judge(standing: Standing, attempt: int) -> Verdict:
    """What a call with this attempt finds."""
    if standing.report is None:
        return Verdict.UNKNOWN
    speaker, phase = speaking(standing), standing.report.phase
    if attempt == speaker:
        return Verdict.ENDING if ending(standing) else Verdict.CURRENT
    if speaker is None and phase in {Phase.STOPPING, Phase.STUCK} and attempt <= standing.report.attempt:
        return Verdict.ENDING  # This sidecar began in the middle of the stop: only the supervisor knows.
    return Verdict.OVER if attempt < current(standing) else Verdict.ABSENT


def stop_of(standing: Standing, now_ms: int) -> Stop | None:
    """The stop that the worker should know of; None while it may run on, and where there is no worker."""
    directive, attempt = standing.directive, speaking(standing)
    if directive is None or attempt is None or not ending(standing):
        return None
    left = max(0, standing.heard_ms + directive.grace_ms - now_ms)
    return Stop(attempt, directive.reason, directive.planned, left)


def run_of(standing: Standing) -> wire.Run | None:
    """What the worker that speaks was started with; None = not heard by this sidecar."""
    run = standing.run
    return run.run if run is not None and run.attempt == speaking(standing) else None


def ranks_of(run: wire.Run) -> tuple[int, ...]:
    """The ranks that call from here; () = a launcher gives them out, so they aren't known."""
    ranks = tuple(process.rank for process in run.processes if process.rank is not None)
    return ranks if len(ranks) == len(run.processes) else ()


def environment(run: wire.Run) -> dict[str, str]:
    """What all processes of the member share (rank and local rank are in it for a single process only)."""
    shared = set.intersection(*(set(process.env) for process in run.processes)) if run.processes else set()
    return dict(shared)


def _newer(new: wire.Directive, old: wire.Directive | None) -> bool:
    return old is None or new.order > old.order
