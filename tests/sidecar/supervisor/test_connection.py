"""The connection to the sidecar: it may break at any time."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from gangsidecar import wire
from gangsidecar.supervisor.connections import QUIET_MS, SidecarConnection
from gangsidecar.wire import (
    Checkpoint,
    Phase,
    Ping,
    Progress,
    Scanned,
    Verb,
)
from tests.sidecar.supervisor.supervised import SLEEP, Member, Sidecar, is_alive, pids, shell, wait_for


def test_workers_keep_running_while_the_sidecar_is_away(member: Member) -> None:
    before = member.train(*shell("exec sleep 1000"))
    (worker,) = member.workers()
    member.sidecar.close()
    member.sidecar = Sidecar(member.folder / "socket")
    member.sidecar.accept()
    after = member.sidecar.until(lambda _: True)
    assert (after.session, after.phase, after.attempt) == (before.session, Phase.RUNNING, 1)
    assert after.seq > before.seq
    assert pids(member.file()) == [worker]
    assert is_alive(worker)


def test_a_sidecar_that_is_back_learns_of_an_end_during_its_absence(member: Member) -> None:
    member.train(*shell("exec sleep 1000"))
    (worker,) = member.workers()
    member.sidecar.close()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    member.sidecar = Sidecar(member.folder / "socket")
    member.sidecar.accept()
    (end,) = member.sidecar.until(lambda _: True).ends
    assert end.signal == signal.SIGKILL


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello", "not JSON"),
        ('{"v":7,"type":"Ping"}', "version 7"),
        (wire.encode(Scanned(1, "p")), "not for a supervisor"),
        ("x" * (wire.MAX_BYTES + 2), "over the limit"),
    ],
)
def test_a_malformed_line_closes_one_connection_and_the_log_says_why(member: Member, line: str, reason: str) -> None:
    before = member.train(*SLEEP)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        member.sidecar.send_line(line)
    member.sidecar.accept()
    after = member.sidecar.until(lambda _: True)
    assert (after.session, after.phase) == (before.session, Phase.RUNNING)
    assert reason in member.log


def test_a_message_in_pieces_is_one_message(member: Member) -> None:
    member.start(*SLEEP)
    line = wire.encode(member.directive(1, Verb.HOLD)) + "\n"
    connection = member.sidecar._connection  # noqa: SLF001
    assert connection is not None
    for one in line.encode():
        connection.sendall(bytes([one]))
    member.sidecar.until(lambda report: report.phase is Phase.READY)


def test_a_sidecar_that_doesnt_read_blocks_nothing(member: Member) -> None:
    report = member.train(*shell("exec sleep 1000"))
    (worker,) = member.workers()
    for step in range(400):
        member.sidecar.send(Checkpoint("ram", step, 0, report.attempt, "p" * 2_000))
    member.sidecar.send(member.directive(2, Verb.HOLD))
    wait_for(lambda: not is_alive(worker))
    told = member.sidecar.until(lambda told: told.phase is Phase.READY)
    assert told.checkpoints[0].step == 399


def test_a_worker_is_stopped_when_no_ping_comes_for_the_isolation_time(member: Member) -> None:
    member.start(*shell("trap 'exit 0' TERM; while :; do sleep 0.01; done"))
    ready = member.hold(1)
    member.sidecar.send(Ping())
    member.run(ready, isolation_ms=2_000)
    member.workers()
    report = member.ended()
    assert (report.phase, report.ends[0].stopped) == (Phase.RUNNING, True)


def test_a_supervisor_without_controller_and_worker_ends_with_0(member: Member) -> None:
    member.launch(*SLEEP, orphan_seconds="1")
    assert member.wait() == 0


def test_the_newest_word_on_the_slowest_rank_stays_when_a_later_one_says_nothing_of_it(member: Member) -> None:
    member.train(*SLEEP)
    for step, own in ((60, (200, 4)), (61, (230, 5)), (62, (None, None))):
        member.sidecar.send(Progress(1, step, 0, own_ms=own[0], own_rank=own[1]))
    report = member.sidecar.until(lambda told: told.progress is not None and told.progress.step == 62)
    assert report.progress is not None
    assert (report.progress.own_ms, report.progress.own_rank) == (230, 5)


def test_reports_contain_what_the_framework_sent(member: Member) -> None:
    member.train(*SLEEP)
    member.sidecar.send(Progress(1, 41, 0), wire.Request(1, 0, "loss is nan", rank=0))
    report = member.sidecar.until(lambda told: told.request)
    assert report.progress is not None
    assert (report.progress.step, report.progress.first_step) == (41, 41)
    assert report.request is not None
    assert report.request.reason == "loss is nan"


def test_a_sidecar_that_is_not_there_is_told_after_a_while_and_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    channel = SidecarConnection(str(tmp_path / "socket"))
    for at in (7, QUIET_MS, QUIET_MS + 6):
        assert not channel.connect(at)
    assert capfd.readouterr().err == "", "a pod that starts is healthy"
    for at in (QUIET_MS + 7, QUIET_MS + 207):
        assert not channel.connect(at)
    assert capfd.readouterr().err.count("no sidecar for 5 s; trying again") == 1
    sidecar = Sidecar(tmp_path / "socket")
    assert channel.connect(QUIET_MS + 407)
    assert "the sidecar is there" in capfd.readouterr().err
    channel.close(0, "the test ends")
    sidecar.close()


def test_what_the_supervisor_has_to_say_goes_to_its_own_file_if_it_has_one(member: Member) -> None:
    own = member.folder / "own.log"
    member.environment = {**os.environ, "GANG_SUPERVISOR_LOG": str(own)}
    member.train(*shell('echo "words $GANG_SUPERVISOR_LOG" >&2; exec sleep 1000'))
    wait_for(lambda: member.log)
    assert member.log == "words \n", "nor does the worker see the variable"
    assert "gangctl-supervisor: a session begins" in own.read_text()
