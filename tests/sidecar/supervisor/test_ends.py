"""How the worker's processes ended, as the report shows it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from gangsidecar.wire import (
    STOP_SIGNALS,
    Verb,
)
from tests.sidecar.supervisor.supervised import SLEEP, Member, is_alive, is_zombie, python, shell, wait_for


def test_a_report_has_the_signal_that_killed_the_worker(member: Member) -> None:
    member.train(*shell("exec sleep 1000"))
    (worker,) = member.workers()
    os.kill(worker, signal.SIGKILL)
    (end,) = member.ended().ends
    assert (end.signal, end.exit_code, end.stopped, end.attempt, end.rank) == (signal.SIGKILL, None, False, 1, 0)


def test_a_report_says_that_a_worker_was_killed_for_lack_of_memory(small_group: Path, member: Member) -> None:
    member.start(*python("bytearray(256 << 20)"))
    (small_group / "cgroup.procs").write_text(str(member.pid))
    member.run(member.hold(1))
    (end,) = member.ended().ends
    assert (end.signal, end.oom) == (signal.SIGKILL, True)


def test_an_end_just_before_a_hold_counts_as_natural(member: Member) -> None:
    member.train(*shell("exec sleep 1000"))
    (worker,) = member.workers()
    os.kill(member.pid, signal.SIGSTOP)
    os.kill(worker, signal.SIGSEGV)
    wait_for(lambda: is_zombie(worker))
    member.sidecar.send(member.directive(2, Verb.HOLD))
    os.kill(member.pid, signal.SIGCONT)
    (end,) = member.ended().ends
    assert (end.signal, end.stopped) == (signal.SIGSEGV, False)


def test_exit_0_after_sigterm_to_the_supervisor_counts_as_stopped(member: Member) -> None:
    member.train(*shell("trap 'exit 0' TERM; echo ready > $DIR/ready; while :; do sleep 0.01; done"))
    wait_for(member.file("ready").exists)
    os.kill(member.pid, signal.SIGTERM)
    assert member.sidecar.until(lambda report: report.terminating).ends == ()
    (end,) = member.hold(2, planned=True).ends
    assert (end.exit_code, end.stopped) == (0, True)
    assert member.wait() == 0


@pytest.mark.parametrize("name", STOP_SIGNALS)
def test_a_stop_signal_without_a_controller_stops_the_worker_and_ends(member: Member, name: str) -> None:
    member.train(*shell("exec sleep 1000"))
    (worker,) = member.workers()
    member.sidecar.close()
    os.kill(member.pid, STOP_SIGNALS[name])
    assert member.wait() == 0
    assert not is_alive(worker)


def test_a_missing_command_ends_with_127(member: Member) -> None:
    member.train("trainn.py")
    (end,) = member.ended().ends
    assert (end.exit_code, end.message) == (127, "trainn.py: No such file or directory")


def test_a_file_that_cant_be_executed_ends_with_126(member: Member) -> None:
    member.file("data").write_text("x")
    member.train(str(member.file("data")))
    (end,) = member.ended().ends
    assert end.exit_code == 126
    assert end.message.endswith("Permission denied")


def test_an_impossible_environment_is_reported_as_an_end(member: Member) -> None:
    member.start(*SLEEP)
    member.run(member.hold(1), {"A": "\0"}, {"A": "\ud800"})
    assert [end.exit_code for end in member.ended().ends] == [126, 126]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"message": {"message": "boom", "errorCode": -11, "extraInfo": {}}}, (None, 11, False, "boom")),
        ({"message": {"message": "boom", "errorCode": 42}}, (42, None, False, "boom")),
        ({"message": {"message": "ValueError: x", "extraInfo": {}}}, (1, None, True, "ValueError: x")),
        ({"message": "plain"}, (1, None, True, "plain")),
        ([], (1, None, True, "")),
        (None, (1, None, True, "")),
    ],
)
def test_the_supervisor_reads_in_torchruns_error_file_how_the_child_ended(
    member: Member, said: object, expected: tuple[int | None, int | None, bool, str]
) -> None:
    error_file = member.file("error.json")
    error_file.write_text("left by an earlier attempt")
    write = f'test ! -e "$TORCHELASTIC_ERROR_FILE" && echo \'{json.dumps(said)}\' > "$TORCHELASTIC_ERROR_FILE"; exit 1'
    member.start("sh", "-c", write if said is not None else "exit 1")
    member.run(member.hold(1), {"TORCHELASTIC_ERROR_FILE": str(error_file)})
    (end,) = member.ended().ends
    assert (end.exit_code, end.signal, end.hidden, end.message) == expected
