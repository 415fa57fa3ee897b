"""Decide which attempt may call the framework API now, from what the sidecar relays. Pure.

Calls for attempt N are accepted from the Run(N) that its session was given until the supervisor reports that its worker
is gone. A stop that was ordered doesn't end it: the grace is there for a last checkpoint. The gate must never replace
the supervisor's own check: it only gives the framework a clear answer at once.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from gangsidecar import wire
from gangsidecar.wire import Phase, Verb
from gangsidecar.wire.frozen import frozen


class AttemptState(StrEnum):
    """The state of the attempt that a call names."""

    CURRENT = "Current"
    """Its worker runs."""
    ENDING = "Ending"
    """Its worker is being stopped: checkpoints still count, nothing else does."""
    OVER = "Over"
    """A newer attempt is current."""
    ABSENT = "Absent"
    """It has no worker here: it has not begun, or every process has ended."""
    UNKNOWN = "Unknown"
    """The supervisor has not reported to this sidecar yet."""


@frozen
class AttemptGate:
    """The newest messages. ``directive`` is the newest by its order, not the last to arrive."""

    report: wire.Report | None = None
    directive: wire.Directive | None = None
    directive_at_ms: int = 0
    """When ``directive`` first arrived; with its grace, this is the deadline of a stop."""
    run: wire.Directive | None = None
    """The newest Run that names the session of ``report``."""
    ran: int | None = None
    """The newest attempt that this session is known to have run; None = unknown (the sidecar started later)."""


@frozen
class StopNotice:
    """The worker of ``attempt`` is being stopped."""

    attempt: int
    reason: str
    planned: bool
    left_ms: int
    """Until SIGKILL; 0 when that time has passed."""


def with_report(gate: AttemptGate, report: wire.Report) -> AttemptGate:
    old = gate.report
    if old is not None and old.session != report.session:
        gate = replace(gate, run=None, ran=None)
    if report.phase is Phase.RUNNING:
        gate = replace(gate, ran=report.attempt)
    return replace(gate, report=report)


def with_directive(gate: AttemptGate, directive: wire.Directive, now_ms: int) -> AttemptGate:
    """The gate after a directive of the controller. An older one changes nothing, as for the supervisor."""
    report = gate.report
    if report is None or (directive.gang, directive.pod) != (report.gang, report.pod):
        return gate
    if directive.run is not None and directive.run.session == report.session and _is_newer(directive, gate.run):
        gate = replace(gate, run=directive, ran=max(directive.attempt, gate.ran or 0))
    if not _is_newer(directive, gate.directive):
        return gate
    return replace(gate, directive=directive, directive_at_ms=now_ms)


def live_attempt(gate: AttemptGate) -> int | None:
    """Return the attempt whose worker may still be there; None = there is no worker."""
    report, run = gate.report, gate.run
    if report is None:
        return None
    match report.phase:
        case Phase.RUNNING:
            return report.attempt
        case Phase.READY:  # The worker may call before its supervisor has reported Running.
            return run.attempt if run is not None and run.attempt == report.attempt else None
        case Phase.STOPPING | Phase.STUCK:
            return gate.ran
        case _:
            return None


def current_attempt(gate: AttemptGate) -> int:
    """The attempt to name in the answer to a call of another one; 0 before the first."""
    attempt = live_attempt(gate)
    if attempt is not None:
        return attempt
    return 0 if gate.report is None else gate.report.attempt


def is_ending(gate: AttemptGate) -> bool:
    """Return whether the live worker was ordered to stop."""
    if gate.report is not None and gate.report.phase in {Phase.STOPPING, Phase.STUCK}:
        return True
    directive, attempt = gate.directive, live_attempt(gate)
    if directive is None or attempt is None:
        return False
    return directive.attempt > attempt or (directive.attempt == attempt and directive.verb is Verb.FINISH)


def state_of(gate: AttemptGate, attempt: int) -> AttemptState:
    if gate.report is None:
        return AttemptState.UNKNOWN
    live, phase = live_attempt(gate), gate.report.phase
    if attempt == live:
        return AttemptState.ENDING if is_ending(gate) else AttemptState.CURRENT
    if live is None and phase in {Phase.STOPPING, Phase.STUCK} and attempt <= gate.report.attempt:
        return AttemptState.ENDING  # This sidecar started in the middle of the stop: only the supervisor knows.
    return AttemptState.OVER if attempt < current_attempt(gate) else AttemptState.ABSENT


def stop_notice(gate: AttemptGate, now_ms: int) -> StopNotice | None:
    """Return the stop of which the worker is notified; None while it may run on, and where there is no worker.

    What the worker does about the stop must not change its stacks: the notice comes when they are taken.
    """
    directive, attempt = gate.directive, live_attempt(gate)
    if directive is None or attempt is None or not is_ending(gate):
        return None
    taken = None if gate.report is None else gate.report.stacks
    if directive.stacks and (taken is None or taken.attempt != attempt):
        return None
    left = max(0, gate.directive_at_ms + directive.grace_ms - now_ms)
    return StopNotice(attempt, directive.reason, directive.planned, left)


def live_run(gate: AttemptGate) -> wire.Run | None:
    """Return the Run of the live worker; None = this sidecar has not seen it."""
    run = gate.run
    return run.run if run is not None and run.attempt == live_attempt(gate) else None


def ranks_of(run: wire.Run) -> tuple[int, ...]:
    """The ranks that call from here; () = a launcher assigns them, so they are unknown."""
    ranks = tuple(process.rank for process in run.processes if process.rank is not None)
    return ranks if len(ranks) == len(run.processes) else ()


def checkpoint_tiers(run: wire.Run) -> dict[str, str]:
    """Checkpoint tier -> type of its source (API, Directory); empty = unknown, or the job has none."""
    pairs = (pair.partition("=") for pair in _variable(run, "GANG_CHECKPOINT_TIERS").split(",") if pair)
    return {name: source for name, _, source in pairs}


def peers_tier(run: wire.Run) -> str:
    """The tier in which members hold copies for each other; empty = there is none."""
    return _variable(run, "GANG_MEMORY_TIER")


def _variable(run: wire.Run, name: str) -> str:
    return dict(run.processes[0].env).get(name, "") if run.processes else ""


def shared_environment(run: wire.Run) -> dict[str, str]:
    """Return the variables that all processes of the member share (ranks only if there is one process)."""
    shared = set.intersection(*(set(process.env) for process in run.processes)) if run.processes else set()
    return dict(shared)


def _is_newer(new: wire.Directive, old: wire.Directive | None) -> bool:
    return old is None or new.order > old.order
