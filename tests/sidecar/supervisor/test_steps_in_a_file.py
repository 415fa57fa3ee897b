"""A file that the worker touches at each step: progress without a step. With real processes and a real file system."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gangsidecar.wire import Progress, Source
from tests.sidecar.supervisor.supervised import SLEEP, Member, helpers, is_alive, wait_for


def trains(member: Member, path: Path, attempt: int = 1) -> None:
    """A worker that does nothing; the test touches the file in its place."""
    if attempt == 1:
        member.start(*SLEEP)
    member.run(member.hold(attempt), source=Source(file=str(path)))


def first(member: Member) -> Progress:
    found = member.sidecar.until(lambda report: report.progress is not None).progress
    assert found is not None
    return found


def watcher(member: Member) -> int:
    """The child of the supervisor that is no worker."""
    return int(wait_for(lambda: helpers(member.pid))[0])


def looks(pid: int) -> None:
    """Wait until the watcher waits for its next look."""
    wait_for(lambda: "nanosleep" in Path(f"/proc/{pid}/wchan").read_text())


def test_the_first_touch_after_the_start_is_the_first_step(member: Member, tmp_path: Path) -> None:
    path = tmp_path / "touched"
    path.touch()
    os.utime(path, (4e9, 4e9))  # The clock of the file server is ahead.
    trains(member, path)
    looks(watcher(member))
    assert member.sidecar.last is not None
    assert member.sidecar.last.progress is None, "what was touched before the start is no step"
    os.utime(path, (1000, 1000))
    told = first(member)
    assert (told.uncounted, told.first_step, told.phase) == (True, None, "Step")
    assert told.first_age_ms is not None
    os.utime(path, (1001, 1001))
    later = member.sidecar.until(
        lambda report: report.progress and report.progress.age_ms < (report.progress.first_age_ms or 0)
    )
    assert later.progress is not None
    assert later.progress.uncounted


def test_a_file_that_appears_is_progress_and_one_that_goes_is_not(member: Member, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "later"
    trains(member, path)
    looks(watcher(member))
    path.parent.mkdir()
    path.touch()
    told = first(member)
    path.unlink()
    again = member.sidecar.until(lambda report: report.progress and report.progress.age_ms > told.age_ms + 2500)
    assert again.progress is not None
    assert again.progress.age_ms == again.progress.first_age_ms


def test_a_folder_changes_when_something_is_put_into_it(member: Member, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    path.mkdir()
    os.utime(path, (1000, 1000))
    trains(member, path)
    looks(watcher(member))
    (path / "step-10").touch()
    assert first(member).uncounted


def test_a_file_that_cannot_be_looked_at_is_told_once(member: Member, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    trains(member, tmp_path / "file" / "in-it")
    wait_for(lambda: "the file of progress.source can't be looked at: [Errno 20] Not a directory" in member.log)
    member.hold(2)
    assert member.log.count("can't be looked at") == 1


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_watcher_that_hangs_or_dies_holds_up_nothing(member: Member, tmp_path: Path, number: int) -> None:
    path = tmp_path / "touched"
    trains(member, path)
    one = watcher(member)
    os.kill(one, number)
    if number == signal.SIGKILL:
        wait_for(lambda: "the process that reads progress has died; another is started" in member.log)
        looks(watcher(member))
        path.touch()
        assert first(member).uncounted
        one = watcher(member)
    trains(member, path, attempt=2)
    wait_for(lambda: not is_alive(one))


def test_the_watcher_goes_with_the_worker_and_with_the_supervisor(member: Member, tmp_path: Path) -> None:
    trains(member, tmp_path / "touched")
    one = watcher(member)
    member.hold(2)
    wait_for(lambda: not is_alive(one))
    member.run(member.hold(3), source=Source(file=str(tmp_path)))
    other = watcher(member)
    os.kill(member.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(other))


def test_a_job_without_a_file_has_no_watcher(member: Member, tmp_path: Path) -> None:
    trains(member, tmp_path / "touched")
    watcher(member)
    member.run(member.hold(2))
    wait_for(lambda: not helpers(member.pid))
