"""What a supervisor leaves in the termination message of its container."""

from __future__ import annotations

import os
import signal

import pytest

from gangsidecar.wire import End, from_words
from tests.sidecar.supervisor.supervised import SLEEP, Member, python, shell, text, wait_for

LIMIT = 4096


def test_a_supervisor_that_is_left_alone_leaves_how_its_worker_ended(member: Member) -> None:
    member.start("true")
    report = member.run(member.hold(1), orphan_ms=2_000)
    member.sidecar.close()
    assert member.wait() == 0
    (end,) = from_words(member.words.read_text())
    assert end == End(report.attempt, 0, 0, exit_code=0)


def test_how_a_worker_ended_is_there_at_once_and_survives_sigkill(member: Member) -> None:
    report = member.train("sh", "-c", "exit 3")
    member.ended()
    wait_for(lambda: text(member.words))
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    (end,) = from_words(member.words.read_text())
    assert (end.attempt, end.exit_code, end.stopped) == (report.attempt, 3, False)


def test_a_worker_that_was_stopped_is_told_as_stopped(member: Member) -> None:
    report = member.train(*shell("trap 'exit 0' TERM; echo ready > $DIR/ready; sleep 1000 & wait"))
    wait_for(member.file("ready").exists)
    member.finish(report.attempt)
    (end,) = from_words(member.words.read_text())
    assert (end.exit_code, end.stopped) == (0, True)


def test_a_new_session_hands_on_the_words_of_the_last(member: Member) -> None:
    member.train("false")
    member.ended()
    wait_for(lambda: text(member.words))
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    member.words.unlink()  # A container that is started again has a message of its own.
    member.start(*SLEEP)
    wait_for(lambda: text(member.words))
    assert [end.exit_code for end in from_words(member.words.read_text())] == [1]


def test_what_the_worker_wrote_stays_behind_the_words(member: Member) -> None:
    lines = "".join(f"line {number}: why it failed\n" for number in range(200))
    member.train(*python(f"open({str(member.words)!r}, 'w').write({lines!r}); raise SystemExit(5)"))
    member.ended()
    wait_for(lambda: member.words.read_text().startswith("gangctl: "))
    written = member.words.read_text()
    assert len(written) <= LIMIT
    assert written.endswith("line 199: why it failed\n")
    assert [end.exit_code for end in from_words(written)] == [5]


def test_a_message_that_cannot_be_written_is_logged_and_costs_nothing_else(member: Member) -> None:
    member.words.mkdir()
    report = member.train("false")
    member.ended()
    member.finish(report.attempt)
    assert "termination message" in member.log


WRITES = "import os; write = lambda text: open(os.environ['GANG_TERMINATION_LOG'], 'a').write(text); "


def test_what_a_worker_writes_as_its_termination_message_is_told_with_its_end(member: Member) -> None:
    member.train(*python(f"{WRITES} write('no dataset\\n\\n at /data \\n'); raise SystemExit(5)"))
    assert [(end.exit_code, end.message) for end in member.ended().ends] == [(5, "no dataset\nat /data")]


def test_of_a_long_message_the_last_lines_are_told_and_of_a_traceback_the_last(member: Member) -> None:
    lines = "".join(f"line {number} \u00e9\0\n" for number in range(500))
    member.train(*python(f"{WRITES} write({lines!r}); raise SystemExit(5)"))
    (end,) = member.ended().ends
    assert len(end.message) <= 240
    assert end.message.endswith("line 498 \u00e9\nline 499 \u00e9")
    report = member.run(member.hold(2))
    assert report.attempt == 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("write('Traceback (most recent call last):\\n  x\\nValueError: y\\n'); raise SystemExit(9)", "ValueError: y"),
        ("write('x' * 9000); os.abort()", "x" * 240),
        ("write('all is well'); raise SystemExit(0)", ""),
        ("write('a shell'); raise SystemExit(127)", ""),
        ("os.remove(os.environ['GANG_TERMINATION_LOG']); raise SystemExit(1)", ""),
        ("os.remove(p := os.environ['GANG_TERMINATION_LOG']); os.mkfifo(p); raise SystemExit(1)", ""),
        ("os.remove(p := os.environ['GANG_TERMINATION_LOG']); os.mkdir(p); raise SystemExit(1)", ""),
        ("write('gangctl: {}\\n'); raise SystemExit(1)", ""),
    ],
)  # fmt: skip
def test_whatever_a_worker_writes_costs_nothing_of_its_end(member: Member, code: str, message: str) -> None:
    member.train(*python(WRITES + code))
    assert [end.message for end in member.ended().ends] == [message]
    assert member.run(member.hold(2)).attempt == 2


def test_what_one_attempt_or_process_wrote_is_told_of_no_other(member: Member) -> None:
    code = f"{WRITES} os.environ['SAYS'] and write(os.environ['SAYS']); raise SystemExit(3)"
    member.start(*python(code))
    member.run(member.hold(1), {"SAYS": "of the first"})
    assert [end.message for end in member.ended().ends] == ["of the first"]
    member.run(member.hold(2), {"SAYS": ""})
    report = member.sidecar.until(lambda report: [end.attempt for end in report.ends] == [1, 2])
    assert [end.message for end in report.ends] == ["of the first", ""]
    assert "of the first" not in member.words.read_text().partition("\n")[2]
