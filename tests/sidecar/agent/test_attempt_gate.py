"""Which attempt may call the framework API: what the sidecar makes of messages that come twice, late or to others."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.agent.attempt_gate import (
    AttemptGate,
    AttemptState,
    live_attempt,
    live_run,
    state_of,
    stop_notice,
    with_directive,
    with_report,
)
from gangsidecar.wire import Phase
from tests.sidecar.agent.sidecars import HOLD, REPORT, run

RUNNING = replace(REPORT, attempt=3, phase=Phase.RUNNING)
STOP = replace(HOLD, attempt=4, grace_ms=30_000)


def training() -> AttemptGate:
    """Attempt 3 runs."""
    ready = with_report(AttemptGate(), replace(RUNNING, phase=Phase.READY))
    return with_report(with_directive(ready, run(3), 1_000), RUNNING)


def left(gate: AttemptGate, now_ms: int) -> int | None:
    notice = stop_notice(gate, now_ms)
    return None if notice is None else notice.left_ms


def test_a_stop_that_comes_again_leaves_no_more_time() -> None:
    gate = with_directive(training(), STOP, 10_000)
    assert left(gate, 15_000) == 25_000
    gate = with_directive(gate, STOP, 15_000)
    assert left(gate, 15_000) == 25_000


def test_a_directive_to_another_pod_or_of_another_gang_changes_nothing() -> None:
    gate = training()
    for other in (replace(STOP, pod="pod-of-another"), replace(STOP, gang="another")):
        assert with_directive(gate, other, 10_000) == gate


def test_what_the_session_before_has_run_is_no_attempt_of_this_one() -> None:
    gate = with_report(training(), replace(RUNNING, session="session-b", phase=Phase.STOPPING))
    assert live_attempt(gate) is None
    assert live_run(gate) is None
    assert state_of(gate, 2) is AttemptState.ENDING, "only the supervisor knows"
