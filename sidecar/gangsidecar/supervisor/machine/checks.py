"""Checks: commands of the job that run in the worker's place, before an attempt starts.

The rule: a check runs while its supervisor is Ready for the attempt, and one at a time. Nothing of it is left when it
has ended, when its time is over, and before anything else may run. In formulas::

    Check(N, turn) starts  only if  Ready(N), accepted is Hold, the pod isn't to end, and turn has no result yet
    a worker starts        only if  no process of a check is left
    a result is reported   only if  the check ended by itself, or its time was over, and no process of it is left

What ends a check for another reason (a newer directive, a lease, a later turn) leaves no result.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor.machine.directives import settle
from gangsidecar.supervisor.machine.events import CheckEnded, RunCheck, Send
from gangsidecar.supervisor.machine.state import Checking, Result, State
from gangsidecar.supervisor.machine.stop import begin_stop
from gangsidecar.wire import Phase, Verb


def begin_check(state: State, now_ms: int, check: wire.Check) -> Result:
    """Run a check that hasn't been run. A later turn ends the one that runs."""
    hold, running = state.directive, state.check
    if hold is None or (hold.verb, hold.attempt) != (Verb.HOLD, check.attempt) or state.phase is not Phase.READY:
        return state, ()
    if state.terminated_at is not None:
        return state, ()
    if any(done.turn == check.turn for done in state.checks):
        return state, (Send(),)
    if running is None:
        return replace(state, check=Checking(check, now_ms), alive=True), (RunCheck(check),)
    if check.turn <= running.check.turn:
        return state, ()
    state = replace(state, check=replace(running, then=check))
    return begin_stop(state, now_ms) if state.stop is None else (state, ())


def end_check(state: State, now_ms: int, event: CheckEnded) -> Result:
    """What it has left behind is killed. If it was killed itself, all that counts is what it said last."""
    running = state.check
    if running is None or running.check.turn != event.turn:
        return state, ()
    check, late = running.check, running.outcome
    if state.stop is not None:
        told = None if late is None else replace(late, detail=event.detail)
        return replace(state, check=replace(running, outcome=told)), ()
    outcome = wire.Checked(
        attempt=check.attempt,
        turn=check.turn,
        name=check.name,
        took_ms=now_ms - running.since,
        exit_code=event.exit_code if event.signal is None else None,
        signal=event.signal,
        detail=event.detail,
    )
    return begin_stop(replace(state, check=replace(running, outcome=outcome)), now_ms)


def check_over(state: State, now_ms: int) -> Result:
    """Nothing of it is left."""
    running, is_ready = state.check, state.phase is Phase.READY and state.terminated_at is None
    state = replace(state, alive=False, stop=None, check=None)
    if running is None or not is_ready:
        return settle(state, now_ms, checked=True)
    if running.outcome is not None:
        state = replace(state, checks=(*state.checks, running.outcome)[-wire.MAX_CHECKED :])
    state, effects = (state, ()) if running.then is None else begin_check(state, now_ms, running.then)
    return state, (*effects, Send())
