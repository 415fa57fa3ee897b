"""Scans of checkpoint directories, beside the worker."""

from __future__ import annotations

from gangsidecar.supervisor import processes
from gangsidecar.wire import (
    Phase,
    Scan,
    Scanned,
    Tier,
    Verb,
)
from tests.sidecar.supervisor.supervised import SLEEP, Member, wait_for


def tier(member: Member) -> Tier:
    return Tier("shared", str(member.file("ckpt")), "step-{step}", "DONE")


def test_a_scan_ignores_an_incomplete_newest_step(member: Member) -> None:
    for step, files in ((1, ["DONE"]), (2, ["DONE"]), (3, [])):
        folder = member.file("ckpt") / f"step-{step}"
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).touch()
    member.start(*SLEEP)
    member.sidecar.send(Scan(4, (tier(member),)))
    answer = member.sidecar.scanned()
    assert (answer.attempt, answer.pod, answer.error) == (4, member.pod, "")
    assert [one.step for one in answer.found] == [2, 1]


def test_a_scan_of_a_hanging_file_system_fails_and_delays_nothing_else(member: Member) -> None:
    for step in range(100):
        (member.file("ckpt") / f"step-{step}").mkdir(parents=True)
    member.start(*SLEEP)
    slow = Scan(1, (tier(member),) * 4_000, timeout_ms=100)
    member.sidecar.send(slow, Scan(2, (tier(member),)), member.directive(1, Verb.HOLD))
    member.sidecar.until(lambda report: report.phase is Phase.READY)
    answer = member.sidecar.scanned()
    assert (answer.attempt, answer.found) == (1, ())
    assert "within 100 ms" in answer.error
    assert member.sidecar.scanned() == Scanned(2, member.pod)
    wait_for(lambda: not processes.children(member.pid))


def test_a_scan_during_a_stop_is_not_killed_with_the_worker(member: Member) -> None:
    for step in range(100):
        (member.file("ckpt") / f"step-{step}").mkdir(parents=True)
    member.train(*SLEEP)
    member.sidecar.send(Scan(2, (tier(member),) * 2_000), member.directive(2, Verb.HOLD))
    member.sidecar.until(lambda report: report.phase is Phase.READY)
    assert member.sidecar.scanned().error == ""
