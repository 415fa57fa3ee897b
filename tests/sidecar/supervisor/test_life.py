"""A supervisor from Hold to Finish: order, speed, memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangsidecar.wire import (
    STOP_SIGNALS,
    Checkpoint,
    Phase,
)
from tests.sidecar.supervisor.supervised import EXECUTABLE, SLEEP, Member, is_alive, pids, shell, wait_for
from tests.signal_sets import has_signal


def test_a_supervisor_carries_out_hold_run_and_finish(member: Member) -> None:
    first = member.start(*shell("sleep 1000 & wait"))
    assert (first.attempt, first.gang, first.member, first.pod) == (0, "g1", "worker-0", member.pod)
    ready = member.hold(1)
    assert (ready.session, ready.stop_ms) == (first.session, None)
    report = member.run(ready)
    assert report.attempt == 1
    (worker,) = member.workers()
    assert is_alive(worker)
    done = member.finish(1)
    assert done.ends[0].stopped
    assert not is_alive(worker)


@pytest.mark.skipif(bool(EXECUTABLE), reason="the executable has its own Python")
def test_the_same_supervisor_starts_the_worker_of_each_attempt(member: Member) -> None:
    member.train(*shell("exec sleep 1000"))
    for attempt in range(2, 5):
        wait_for(lambda: bool(pids(member.file())) and is_alive(pids(member.file())[-1]))
        report = member.run(member.hold(attempt))
        assert report.attempt == attempt
    workers = wait_for(lambda: len(pids(member.file())) == 4 and pids(member.file()))
    assert [is_alive(pid) for pid in workers] == [False, False, False, True]
    member.finish(4)


@pytest.mark.skipif(not EXECUTABLE, reason="Python starts before the archive can keep a signal")
@pytest.mark.parametrize("name", STOP_SIGNALS)
def test_a_signal_that_comes_while_the_executable_starts_ends_it_as_one_that_comes_later(
    member: Member, name: str
) -> None:
    os.mkfifo(member.state)  # It reads this before it catches signals, and waits for a writer.
    member.launch(*SLEEP)
    wait_for(lambda: has_signal(member.pid, "SigBlk", STOP_SIGNALS[name]))
    os.kill(member.pid, STOP_SIGNALS[name])
    member.state.open("wb").close()
    assert member.wait() == 0


def test_a_directive_that_comes_again_with_other_timers_is_logged_once(member: Member) -> None:
    member.start(*SLEEP)
    ready = member.hold(1)
    member.run(ready, fencing=1)
    member.sidecar.send(member.order(ready, fencing=2), member.order(ready, fencing=3))
    member.sidecar.until(lambda report: report.fencing == 3)
    assert member.log.count("Running attempt=1 ") == 1
    member.finish(1)


def test_the_sequence_number_of_reports_grows_through_the_session(member: Member) -> None:
    first = member.start(*SLEEP)
    assert member.hold(1).seq > first.seq


def test_a_worker_that_exits_with_zero_holds_its_supervisor_until_finish(member: Member) -> None:
    member.train("true")
    report = member.ended()
    assert (report.phase, report.ends[0].exit_code, report.ends[0].stopped) == (Phase.RUNNING, 0, False)
    member.finish(1)


def test_a_supervisor_stops_and_starts_a_worker_twenty_times(member: Member) -> None:
    member.train(*SLEEP)
    for attempt in range(2, 22):
        assert member.run(member.hold(attempt)).attempt == attempt


def test_a_supervisor_stays_below_its_memory_limit(member: Member) -> None:
    """Under 17 MB (the executable 14) after some work, without what an interpreter maps from files that all share."""
    report = member.train(*SLEEP)
    for attempt in range(2, 12):
        report = member.run(member.hold(attempt))
    member.sidecar.send(*(Checkpoint("ram", step, 0, report.attempt, f"/dev/shm/{step}") for step in range(300)))
    member.sidecar.until(lambda told: told.checkpoints and told.checkpoints[0].step == 299)
    status = Path(f"/proc/{member.pid}/status").read_text()
    (kilobytes,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert kilobytes < (14 if EXECUTABLE else 17) << 10
