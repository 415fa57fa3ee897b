"""Patterns that are searched for in the worker's output, beside an end. With real processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gangsidecar.supervisor.output_search import PATTERN_LINE
from gangsidecar.wire import LOG_LINE, LogMatch, Phase, Report, Source
from tests.sidecar.supervisor.patient import AT_MOST_MS
from tests.sidecar.supervisor.supervised import Member, helpers, text, wait_for

XID = r"NVRM: Xid .*: (79|48)\b"
NCCL = r"NCCL (WARN|ERROR)"
LINE_79 = "NVRM: Xid (PCI:0000:65:00): 79"
CATASTROPHIC = r"(a+)+b"
WAITS = "import time; time.sleep(1000)"
FILLS = """
import os, select, sys, time
if os.fork() == 0:
    os.write(1, b"x" * 300_000)
else:
    while select.select([], [1], [], 0.2)[1]: time.sleep(0.01)
    sys.exit(1)
"""
"""It ends when nothing reads what its child writes."""


@pytest.fixture(scope="module")
def archive(patient_archive: Path) -> Path:
    return patient_archive


def ends(member: Member, code: str, *patterns: str) -> Report:
    """Start the code as the worker of attempt 1; returns the first report with an end."""
    member.start(sys.executable, "-c", "import os, sys\n" + code)
    member.run(member.hold(1), log_patterns=patterns or (XID, NCCL))
    return member.ended()


def lines(report: Report) -> dict[str, str]:
    """Pattern -> line."""
    assert {match.attempt for match in report.log_matches} <= {1}
    return {match.pattern: match.line for match in report.log_matches}


def test_the_first_report_of_an_end_has_the_line(member: Member, output: Path) -> None:
    told = ends(member, f"os.write(1, b'begins\\n{LINE_79}\\nNVRM: Xid (again): 79\\n'); sys.exit(1)")
    assert lines(told) == {XID: LINE_79}
    assert told.ends[0].exit_code == 1
    assert text(output) == f"begins\n{LINE_79}\nNVRM: Xid (again): 79\n"


@pytest.mark.usefixtures("output")
def test_a_line_is_told_in_printable_ascii_whatever_it_has(member: Member) -> None:
    told = ends(member, "print('\\x1b[1mépoque 7\\t\\U0001f525 FATAL \\\\ \\''); sys.exit(1)", "FATAL")
    assert lines(told) == {"FATAL": r"\x1b[1m\xe9poque 7\t\U0001f525 FATAL \ '"}


@pytest.mark.usefixtures("output")
def test_a_line_without_a_newline_on_standard_error_counts(member: Member) -> None:
    told = ends(member, f"os.write(2, b'x\\n{LINE_79}'); os.kill(os.getpid(), 9)")
    assert lines(told) == {XID: LINE_79}
    assert told.ends[0].signal == 9


@pytest.mark.usefixtures("output")
def test_a_line_that_comes_in_pieces_is_one_line(member: Member) -> None:
    code = f"import time\nfor one in {LINE_79!r}: os.write(1, one.encode()); time.sleep(0.01)\nsys.exit(1)"
    assert lines(ends(member, code)) == {XID: LINE_79}


def test_a_flood_before_the_end_hides_no_line(member: Member, output: Path) -> None:
    code = (
        "for at in range(160): os.write(1, (b'x' * 63 + b'\\n') * 1024)\n"
        f"os.write(1, b'{LINE_79}\\n')\n"
        "os.write(2, b'NCCL WARN it is over')\n"
        "sys.exit(1)\n"
    )
    assert lines(ends(member, code)) == {XID: LINE_79, NCCL: "NCCL WARN it is over"}
    wait_for(lambda: output.stat().st_size == 160 * 65536 + len(LINE_79) + 1)


@pytest.mark.usefixtures("output")
def test_bytes_that_are_no_text_are_escaped(member: Member) -> None:
    told = ends(member, "os.write(1, bytes(range(256)) * 8 + b'\\n\\x1b[31m\\xffNCCL WARN \\xc3\\xa9\\n'); sys.exit(1)")
    assert lines(told) == {NCCL: r"\x1b[31m\ufffdNCCL WARN \xe9"}


@pytest.mark.usefixtures("output")
def test_of_a_long_line_the_part_with_the_match_is_told(member: Member) -> None:
    code = (
        f"os.write(1, b'x' * {PATTERN_LINE - 9} + b'NCCL WARN' + b'y' * 500 + b'\\n')\n"
        f"os.write(1, b'x' * {PATTERN_LINE - 5} + b'{LINE_79}\\n')\n"
        "sys.exit(1)\n"
    )
    assert lines(ends(member, code)) == {NCCL: "..." + "x" * 20 + "NCCL WARN"}, "only the first bytes are searched"


@pytest.mark.usefixtures("output")
def test_a_long_line_is_cut(member: Member) -> None:
    (line,) = lines(ends(member, "os.write(1, b'NCCL WARN' + b'y' * 500); sys.exit(1)")).values()
    assert line == "NCCL WARN" + "y" * (LOG_LINE - 12) + "..."


def test_a_pattern_that_never_ends_is_given_up_and_the_others_go_on(member: Member, output: Path) -> None:
    code = (
        "os.write(1, b'a' * 60 + b'!\\n')\n"
        "import time\n"
        "while not os.path.exists(os.environ['DIR'] + '/go'): time.sleep(0.05)\n"
        f"os.write(1, b'ab\\n{LINE_79}\\n')\n"
        "sys.exit(1)\n"
    )
    member.start(sys.executable, "-c", "import os, sys\n" + code)
    member.run(member.hold(1), log_patterns=(CATASTROPHIC, XID))
    wait_for(lambda: "the pattern (a+)+b of onLog took more than 1 s" in member.log)
    (member.folder / "go").touch()
    assert lines(member.ended()) == {XID: LINE_79}
    assert text(output).endswith(f"ab\n{LINE_79}\n")


@pytest.mark.usefixtures("output")
def test_a_pattern_for_a_newer_python_is_given_up_at_once(member: Member) -> None:
    assert lines(ends(member, f"os.write(1, b'{LINE_79}'); sys.exit(1)", "(", XID)) == {XID: LINE_79}
    assert "the pattern ( of onLog can't be used with the Python of this image" in member.log


@pytest.mark.usefixtures("output")
def test_a_child_that_keeps_the_pipe_delays_no_report(member: Member) -> None:
    code = (
        "import subprocess\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "os.write(1, b'NCCL WARN and no newline')\n"
        "sys.exit(1)\n"
    )
    told = ends(member, code)
    assert lines(told) == {NCCL: "NCCL WARN and no newline"}
    assert told.ends[0].age_ms < AT_MOST_MS
    member.hold(2, grace_ms=100)
    wait_for(lambda: not helpers(member.pid))


@pytest.mark.usefixtures("output")
def test_a_match_of_any_process_of_the_pod_counts(member: Member) -> None:
    code = (
        "import os, sys, time\n"
        "told = os.environ['DIR'] + '/told'\n"
        "if os.environ['RANK'] == '1': print('NCCL WARN by 1', flush=True); open(told, 'w'); time.sleep(1000)\n"
        "while not os.path.exists(told): time.sleep(0.01)\n"
        "sys.exit(1)\n"
    )
    member.start(sys.executable, "-c", code)
    member.run(member.hold(1), {"RANK": "0"}, {"RANK": "1"}, log_patterns=(NCCL,))
    assert lines(member.ended()) == {NCCL: "NCCL WARN by 1"}


@pytest.mark.usefixtures("output")
def test_each_attempt_has_its_own_lines(member: Member) -> None:
    code = "import os, sys\nif os.environ['AT'] == '1': print('NCCL WARN')\nsys.exit(3)"
    member.start(sys.executable, "-c", code)
    member.run(member.hold(1), {"AT": "1"}, log_patterns=(NCCL,))
    assert member.ended().log_matches == (LogMatch(1, NCCL, "NCCL WARN"),)
    assert member.hold(2).log_matches, "they stay until the next worker"
    member.run(member.hold(3), {"AT": "3"}, log_patterns=(NCCL,))
    told = member.sidecar.until(lambda report: any(end.attempt == 3 for end in report.ends))
    assert told.log_matches == ()


def test_steps_and_patterns_are_found_side_by_side(member: Member, output: Path) -> None:
    code = "import sys\nprint('step 4')\nprint('NCCL WARN at step 5')\nsys.exit(1)"
    member.start(sys.executable, "-c", code)
    member.run(member.hold(1), log_patterns=(NCCL,), source=Source(pattern="step (?P<step>[0-9]+)"))
    told = member.ended()
    assert lines(told) == {NCCL: "NCCL WARN at step 5"}
    assert text(output).count("step") == 2
    told = member.sidecar.until(lambda report: report.progress is not None and report.progress.step == 5)


@pytest.mark.usefixtures("output")
def test_patterns_alone_tell_no_progress(member: Member) -> None:
    assert ends(member, "print('line'); sys.exit(1)").progress is None


@pytest.mark.usefixtures("output")
def test_a_match_alone_ends_nothing(member: Member) -> None:
    member.start(sys.executable, "-c", f"print('NCCL WARN', flush=True); {WAITS}")
    member.run(member.hold(1), log_patterns=(NCCL,))
    told = member.sidecar.until(lambda report: report.log_matches)
    assert (told.phase, told.ends) == (Phase.RUNNING, ())


@pytest.mark.usefixtures("output")
def test_a_supervisor_that_is_killed_leaves_a_copier_that_rests(member: Member) -> None:
    member.start(sys.executable, "-c", f"print('NCCL WARN', flush=True); {WAITS}")
    member.run(member.hold(1), log_patterns=(NCCL,))
    member.sidecar.until(lambda report: report.log_matches)
    (copier,) = helpers(member.pid)
    os.kill(member.pid, 9)
    member.wait()

    def ticks() -> int:
        return sum(map(int, Path(f"/proc/{copier}/stat").read_text().rpartition(")")[2].split()[11:13]))

    before, began = ticks(), time.monotonic()
    wait_for(lambda: time.monotonic() > began + 1)
    assert ticks() - before < 20, "it does not spin"


def test_where_only_steps_are_looked_for_no_report_waits(member: Member) -> None:
    """The reader of the log does not read, so the copier never says that it has searched all."""
    log, member.stdout = os.pipe()
    member.start(sys.executable, "-c", FILLS)
    member.run(member.hold(1), source=Source(pattern="step (?P<step>[0-9]+)"))
    assert member.ended().ends[0].age_ms < AT_MOST_MS
    os.close(log)
    os.close(member.stdout)
