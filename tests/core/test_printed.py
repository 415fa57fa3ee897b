"""What a worker printed last: which lines of a log are its own, which of them tells most, and how much is kept."""

from __future__ import annotations

import time

import pytest

from gangctl.core.facts.printed import MAX_LINE, MAX_LINES, MAX_OUTPUT_BYTES, Printed, last_lines

AT = "2026-11-24T08:00:00.123Z"
BEGINS = f"{AT} info a session begins session=ab member=worker-0 incarnation=0\n"
ENDED = f"{AT} info a process of the worker ended pid=12 exit_code=1 signal=None\n"
FINISHED = f"{AT} info a process of the worker ended pid=11 exit_code=0 signal=None\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 5, in <module>
    raise RuntimeError("no dataset at /data")
RuntimeError: no dataset at /data
"""
ERROR = "RuntimeError: no dataset at /data"


def phase(name: str, attempt: int) -> str:
    return f"{AT} info {name} attempt={attempt} on=Directive reason='of worker-0'\n"


def printed(log: str, attempt: int = 1, rank: int | None = None, *, overtaken: bool = False) -> Printed:
    return last_lines(log.encode(), attempt, rank, overtaken=overtaken)


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def test_lines_of_gangctl_are_never_the_workers() -> None:
    found = printed(BEGINS + phase("Ready", 1) + phase("Running", 1) + "loading\n" + TRACEBACK + ENDED)
    assert found.lines == ("loading", *TRACEBACK.splitlines())
    assert (found.line, found.is_error, found.is_complete) == (ERROR, True, True)
    assert not printed("loading\n").is_error


def test_lines_that_name_the_program_are_gangctls_too() -> None:
    log = BEGINS + phase("Running", 1) + "loading\n" + ENDED + phase("Ready", 2)
    assert printed(log.replace(" info ", " info gangctl-supervisor: ")) == printed(log)


def test_a_log_over_attempts_tells_each_its_own() -> None:
    log = phase("Running", 1) + "one\n" + ENDED + "saves\n" + phase("Ready", 2) + phase("Running", 2) + "two\n"
    log += phase("Stopping", 3) + "KeyboardInterrupt\n" + phase("Ready", 3) + phase("Running", 3)
    assert printed(log, 1, overtaken=True).lines == ("one", "saves")
    assert printed(log, 2, overtaken=True).lines == ("two",)
    assert printed(log, 3).lines == ()
    assert printed(log, 4).lines == ()


def test_a_tail_without_the_begin_of_the_attempt_is_its_own_if_nothing_else_can_be() -> None:
    tail = "step 8\n" + ENDED + phase("Ready", 2)
    assert printed(tail, overtaken=True).lines == ("step 8",)
    assert printed("step 8\n").lines == ("step 8",)
    assert printed("step 8\n", overtaken=True).lines == (), "it may be of the next attempt"
    assert printed("step 8\n" + phase("Stopping", 3)).lines == (), "it is of attempt 2"
    assert printed("step 8\n" + phase("Running", 2)).lines == ()
    assert printed(BEGINS + "step 8\n").lines == (), "the container is another one"


def test_what_other_processes_print_after_the_first_has_failed_hides_no_exception() -> None:
    echo = "Traceback (most recent call last):\n  File a\nConnectionError: reset by peer\n"
    found = printed(phase("Running", 1) + FINISHED + TRACEBACK + ENDED + echo + phase("Stopping", 2))
    assert found.line == ERROR
    late = printed(phase("Running", 1) + "loading\n" + ENDED + TRACEBACK + phase("Ready", 2))
    assert late.line == ERROR, "a copied output may come after the end"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", ""),
        ("\n  \n", ""),
        ("loading\nKilled\n\n", "Killed"),
        ("train.py FAILED\n======\n", "train.py FAILED"),
        (f"{TRACEBACK}bye\n", ERROR),
        ((f"{TRACEBACK}\nDuring handling of the above exception, another exception occurred:\n\n"
         "Traceback (most recent call last):\n  File b\nValueError: b\n"), "ValueError: b"),
        ("".join(f"[rank3]: {one}\n" for one in TRACEBACK.splitlines()), f"[rank3]: {ERROR}"),
        ((f"{TRACEBACK}Traceback (most recent call last):\n  File run.py\n"
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n"), ERROR),
        ("Traceback (most recent call last):\n  File run.py\nChildFailedError: \n===\n", "ChildFailedError:"),
        (("  + Exception Group Traceback (most recent call last):\n  |   File a\n"
         "  | ExceptionGroup: two (2 sub-exceptions)\n"
         "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File b\n"
         "    | ValueError: b\n    +------------------------------------\n"), "ValueError: b"),
        ('  File "a.py", line 1\n    x ==\n       ^\nSyntaxError: invalid syntax\n', "SyntaxError: invalid syntax"),
        ("Traceback (most recent call last):\n  File a\n    cut off", "cut off"),
        ("\x1b[31merror\x1b[0m: red\n", "error: red"),
        ("  0%|   | 0/9\r 50%|## | 4/9\r", "50%|## | 4/9"),
        ("progress 50 %" + ENDED, "progress 50 %"),
        ("a\u202eb\x07", "a\\u202eb\\x07"),
        ("password=hunter2", "password=***"),
    ],
)  # fmt: skip
def test_the_line_that_tells_most(log: str, line: str) -> None:
    assert printed(log).line == line


def test_what_is_kept_is_bounded_and_has_the_line_that_tells_most() -> None:
    noise = "".join(f"atexit {number}\n" for number in range(100))
    found = printed(TRACEBACK + noise)
    assert found.lines == tuple(TRACEBACK.splitlines())
    many = printed(noise)
    assert many.lines == tuple(f"atexit {number}" for number in range(90, 100))
    wide = printed("\u20ac" * 300 + "\n" + "x y " * 25_000 + "\n" + "z" * 20)
    assert (len(wide.lines), wide.lines[0][-1], len(wide.lines[0])) == (3, "\u2026", MAX_LINE)
    assert sum(len(line.encode()) + 1 for line in wide.lines) <= MAX_OUTPUT_BYTES


@pytest.mark.parametrize(
    "content", [bytes(range(256)), b"\xff\x00", b"\r", b"a-", b"x=", b"Traceback (most recent call last):\n"]
)
def test_any_bytes_are_read_quickly_and_shown_as_text(content: bytes) -> None:
    log = content * (100_000 // len(content))
    began = time.process_time()
    found = last_lines(log, 1, overtaken=False)
    assert time.process_time() - began < 1
    assert len(found.lines) <= MAX_LINES
    assert sum(len(line.encode()) + 1 for line in found.lines) <= MAX_OUTPUT_BYTES
    assert all(line.isprintable() for line in (*found.lines, found.line))


def test_a_directive_that_is_told_again_hides_nothing_of_its_attempt() -> None:
    log = phase("Running", 4) + "old\n" + phase("Stopping", 5) + phase("Running", 5) + TRACEBACK + phase("Running", 5)
    assert printed(log + "teardown\n" + ENDED, 5).line == ERROR
    assert printed(log + ENDED + phase("Stopping", 6), 5).lines == tuple(TRACEBACK.splitlines())


def test_an_empty_line_of_a_traceback_with_a_prefix_is_not_its_error() -> None:
    lines = "".join(
        f"[rank0]: {line}\n" for line in ("Traceback (most recent call last):", "  File", "", "KeyError: 1")
    )
    assert printed(lines).line == "[rank0]: KeyError: 1"


def test_a_line_of_bars_alone_is_told_as_it_is() -> None:
    assert printed("|||\n").line == "|||"


ECHO = "Traceback (most recent call last):\n  File train.py\nDistBackendError: the connection was closed by its peer\n"
OF_TORCHRUN = """\
============================================================
train.py FAILED
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-24_08:00:00
  host      : worker-0
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
============================================================
"""


def test_of_several_ranks_only_the_lines_of_the_one_that_failed_count() -> None:
    log = "loading\n" + of_rank(3, TRACEBACK) + of_rank(2, ECHO) + of_rank(13, ECHO)
    found = printed(log, rank=3)
    assert found.line == f"[rank3]: {ERROR}"
    assert found.lines == ("loading", *of_rank(3, TRACEBACK).splitlines())
    assert printed(log, rank=None).line.startswith("[rank13]: DistBackendError")


def test_torchrun_tells_which_of_its_ranks_failed_first() -> None:
    raised = "Traceback (most recent call last):\n  File run.py\nx.ChildFailedError:\n"
    assert printed(of_rank(3, TRACEBACK) + of_rank(2, ECHO) + raised + OF_TORCHRUN).line == f"[rank3]: {ERROR}"


def test_the_words_of_other_ranks_are_not_put_into_the_mouth_of_one_that_printed_nothing() -> None:
    assert printed(of_rank(0, ECHO), rank=3).lines == ()
    assert printed("step 7\n" + of_rank(0, ECHO), rank=3).line == "step 7"
