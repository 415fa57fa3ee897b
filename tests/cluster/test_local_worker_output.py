"""Which part of a local log is an attempt's: logs go on over attempts, and may be emptied by a rotation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.log_files import TAIL_BYTES, LogFileReader, rotate_log

RUNNING = "2026-11-24T08:00:00.123Z info Running attempt=1 on=Directive reason=''\n"


@dataclass
class Pod:
    """A gang of one pod."""

    folder: GangFolder
    output: LogFileReader = field(default_factory=LogFileReader)

    @property
    def pod(self) -> PodFolder:
        return self.folder.pod("g-worker-0-0")

    def starts(self, attempt: int) -> None:
        self.output.attempt_starts(self.folder, ["g-worker-0-0"], attempt)

    def says(self, text: str) -> None:
        self.pod.path.mkdir(parents=True, exist_ok=True)
        with self.pod.worker_log.open("a") as file:
            file.write(text)

    def rotated(self) -> None:
        assert rotate_log(self.pod.worker_log, most=self.pod.worker_log.stat().st_size - 1)

    def printed(self, attempt: int) -> tuple[str, ...]:
        return self.output.printed(self.pod, attempt).lines


def test_an_attempts_part_lies_between_two_sizes(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.starts(1)
    assert one.printed(1) == (), "there is no log yet"
    one.says("first\n")
    one.starts(2)
    one.says("second\n")
    one.starts(3)
    assert (one.printed(2), one.printed(3)) == (("second",), ())
    one.says("third")
    assert (one.printed(2), one.printed(3)) == (("second",), ("third",))


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.starts(1)
    one.says("long " * TAIL_BYTES + "\nthe end\n")
    assert one.printed(1) == ("the end",)


def test_a_log_that_was_emptied_begins_anew(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.says("an earlier gang of this name\n")
    one.starts(1)
    one.pod.worker_log.unlink()
    one.says("new\n")
    assert one.printed(1) == ("new",)


def test_after_a_takeover_only_lines_between_tell_which_are_of_the_attempt(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.says("first\n")
    assert one.printed(1) == ()
    one.says(f"{RUNNING}second\n")
    assert one.printed(1) == ("second",)


def test_pods_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.starts(1)
    one.output.attempt_starts(one.folder, [], 2)
    one.says("late\n")
    assert one.printed(1) == ()


def test_a_gang_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    for attempt in (7, 8):
        one.says("of the gang before\n")
        one.starts(attempt)
    one.starts(1)
    one.says("RuntimeError: no dataset\n")
    assert one.printed(1) == ("RuntimeError: no dataset",)


def test_what_came_before_a_rotation_is_found_too(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.says("of the attempt before\n")
    one.starts(1)
    one.says("Traceback (most recent call last):\n  File train.py\n")
    one.rotated()
    assert one.printed(1) == ("Traceback (most recent call last):", "  File train.py")
    one.says("ValueError: x\n")
    assert one.printed(1) == ("Traceback (most recent call last):", "  File train.py", "ValueError: x")
    one.starts(2)
    one.says("second\n")
    assert (one.printed(1)[-1], one.printed(2)) == ("ValueError: x", ("second",))


def test_a_rotation_after_the_next_attempt_began_mixes_nothing(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.starts(1)
    one.says("first\n")
    one.starts(2)
    one.says("second\n")
    one.rotated()
    one.says("more of the second\n")
    assert (one.printed(1), one.printed(2)) == (("first",), ("second", "more of the second"))


def test_a_log_that_was_rotated_before_the_attempt_hides_nothing_of_it(tmp_path: Path) -> None:
    one = Pod(GangFolder(tmp_path))
    one.says("of an earlier attempt\n")
    one.rotated()
    one.starts(1)
    assert one.printed(1) == ()
    one.says("long " * TAIL_BYTES + "\nfirst\n")
    one.rotated()
    assert one.printed(1) == ("first",)
