"""Steps that are found in the worker's output, which reaches the log as it is. With real processes."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangsidecar.supervisor import processes
from gangsidecar.supervisor.output_search import STEP_LINE
from gangsidecar.wire import STOP_SIGNALS, Phase, Report, Restore, Source, Verb
from tests.sidecar.supervisor.supervised import Member, helpers, is_alive, text, unread, wait_for
from tests.sidecar.supervisor.warm import Warm

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = Source(pattern=r"step (?P<step>[0-9]+)")
WAITS = "import time; time.sleep(1000)"


@pytest.fixture(autouse=True)
def buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def is_full(pipe: int) -> bool:
    """No page of the pipe is free. How many bytes that is, depends on the writes: ends of pages stay empty."""
    return not select.select([], [pipe], [], 0)[1]


def script(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def step(report: Report) -> int | None:
    """The newest step; None if none is known."""
    return None if report.progress is None or report.progress.uncounted else report.progress.step


def moved_at(report: Report) -> int:
    """When the job went on last, on the clock of the supervisor."""
    return 0 if report.progress is None else report.sent_ms - report.progress.age_ms


def _is_at(wanted: int) -> Callable[[Report], bool]:
    return lambda report: step(report) == wanted


def trains(member: Member, code: str, *envs: dict[str, str], source: Source | None = STEPS) -> Report:
    """Start the code as the worker of attempt 1."""
    member.start(*script(code))
    return member.run(member.hold(1), *envs, source=source)


def test_a_line_with_a_step_is_progress(member: Member, output: Path) -> None:
    trains(member, f"print('begins'); print('at step 3 of 9: loss 0.1'); print('step 5'); {WAITS}")
    told = member.sidecar.until(lambda report: step(report) == 5)
    assert told.progress is not None
    assert (told.progress.first_step, told.progress.phase, told.progress.attempt) == (3, "Step", 1)
    assert told.progress.every == 2
    assert text(output) == "begins\nat step 3 of 9: loss 0.1\nstep 5\n"


def test_the_line_that_says_which_step_was_restored_is_no_first_step(member: Member) -> None:
    member.start(*script(f"print('found step 7'); print('goes on from step 7'); print('step 8'); {WAITS}"))
    member.run(member.hold(1), source=STEPS, restore=Restore(7, "ram"))
    told = member.sidecar.until(_is_at(8))
    assert told.progress is not None
    assert told.progress.first_step == 8
    member.run(member.hold(2), source=STEPS, restore=Restore(6, "ram"))
    told = member.sidecar.until(lambda report: step(report) == 8 and report.attempt == 2)
    assert told.progress is not None
    assert (told.progress.attempt, told.progress.first_step) == (2, 7)


def test_a_pattern_may_call_a_character_by_its_name(member: Member) -> None:
    source = Source(pattern=r"\N{BULLET} step (?P<step>[0-9]+)")
    trains(member, f"import os; os.write(1, b'\\xe2\\x80\\xa2 step 6\\n'); {WAITS}", source=source)
    assert member.sidecar.until(_is_at(6))


def test_python_does_not_keep_its_lines_back(member: Member, output: Path) -> None:
    code = f"import os; print('step 1', os.environ['PYTHONUNBUFFERED']); {WAITS}"
    trains(member, code)
    member.sidecar.until(lambda report: step(report) == 1)
    assert text(output) == "step 1 1\n"


def test_every_byte_reaches_its_own_stream(member: Member, output: Path) -> None:
    noise = random.Random(7).randbytes(3_000_000).replace(b"\n", b"", 100)
    (member.folder / "noise").write_bytes(noise)
    code = (
        "import os, sys\n"
        "noise = open(os.environ['DIR'] + '/noise', 'rb').read()\n"
        "for at in range(0, len(noise), 70_001):\n"
        "    sys.stdout.buffer.write(noise[at : at + 70_001])\n"
        "    os.write(2, b'error %d;' % at)\n"
        "os.write(1, b'\\nstep 8\\nno newline')\n"
    )
    trains(member, code)
    member.sidecar.until(lambda report: step(report) == 8)
    member.ended()
    member.finish(2)
    assert output.read_bytes() == noise + b"\nstep 8\nno newline"
    theirs = re.sub(r"2[0-9-]{9}T[0-9:.]+Z (info|warning) .*\n", "", member.log)  # The supervisor's own lines.
    assert theirs == "".join(f"error {at};" for at in range(0, len(noise), 70_001))


def test_two_streams_that_are_one_file_stay_in_order(member: Member, tmp_path: Path) -> None:
    code = "import os\nfor at in range(5000): os.write(1 + at % 2, b'%d\\n' % at)\nos.write(2, b'step 4\\n')\n"
    with (tmp_path / "log").open("ab") as log:
        member.stdout = log.fileno()
        trains(member, code)
        member.sidecar.until(lambda report: step(report) == 4)
    lines = [line for line in member.log.splitlines() if line.isdigit()]
    assert lines == [str(at) for at in range(5000)]


def test_only_the_beginning_of_a_huge_line_is_searched(member: Member, output: Path) -> None:
    code = (
        "import sys\n"
        "print('step 1 ' + 'x' * 5_000_000 + ' step 2')\n"
        f"print('x' * {STEP_LINE - 6} + 'step 3'); print('x' * {STEP_LINE - 5} + 'step 4')\n"
        "print('progress bar', end=''); print('\\rstep 7\\r', end='', flush=True)\n" + WAITS
    )
    trains(member, code)
    told = member.sidecar.until(lambda report: step(report) == 7)
    assert told.progress is not None
    assert told.progress.first_step == 1
    assert told.progress.every == 4, "after step 3 comes step 7"
    assert len(output.read_bytes()) > 5_000_000


def test_what_is_no_number_is_no_step(member: Member, output: Path) -> None:
    code = "print('step -', 'step 1e5', 'step ' + '9' * 30, 'step \\u0663', sep='\\n'); print('epoch 4'); " + WAITS
    trains(member, code, source=Source(pattern=r"(epoch|step) (?P<step>\S+)"))
    told = member.sidecar.until(step)
    assert told.progress is not None
    assert (told.progress.step, told.progress.first_step) == (4, 4)
    assert "epoch 4" in text(output)


def test_each_process_has_its_own_gap_between_steps(member: Member, output: Path) -> None:
    code = (
        "import os, time\n"
        "rank = int(os.environ['RANK'])\n"
        "for at in range(3):\n"
        "    print(f'rank {rank} step {10 * rank + at + 1}')\n" + WAITS
    )
    trains(member, code, {"RANK": "0"}, {"RANK": "1"})
    told = member.sidecar.until(lambda report: step(report) == 13)
    assert told.progress is not None
    assert told.progress.every == 1
    wait_for(lambda: text(output).count("rank 0") == 3)


def test_a_slow_reader_of_the_log_holds_up_nothing_but_the_worker(member: Member) -> None:
    log, output = os.pipe()
    member.stdout = output
    code = "import os\nfor at in range(1, 4000): print(f'step {at} ' + 'x' * 100)\nprint('the end')\n" + WAITS
    trains(member, code)
    first = member.sidecar.until(step)
    wait_for(lambda: is_full(output))
    member.sidecar.until(lambda report: report.seq > first.seq + 1)  # The supervisor goes on to report.
    assert not member.hold(2).killed_ms, "the stop does not wait for the reader"
    in_the_log = unread(log)
    os.close(output)
    member.sidecar.send(member.directive(3, Verb.FINISH))
    found = b""
    while piece := os.read(log, 1 << 16):
        found += piece
    lines = found.decode().splitlines()
    assert lines[: len(lines) - 1] == [f"step {at} " + "x" * 100 for at in range(1, len(lines))]
    assert len(found) > in_the_log, "what was in the worker's pipe has come too"
    assert member.wait() == 0
    os.close(log)


def test_the_last_lines_come_before_the_supervisor_ends(member: Member, output: Path) -> None:
    code = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: (print('bye'), sys.exit(3)))\nprint('step 1')\n"
        "while True:\n    time.sleep(0.005)\n"
    )
    trains(member, code)
    member.sidecar.until(lambda report: step(report) == 1)
    member.finish(2)
    assert text(output) == "step 1\nbye\n"


@pytest.mark.usefixtures("output")
def test_a_grandchild_that_keeps_the_pipe_holds_up_no_stop(member: Member) -> None:
    code = (
        "import os, signal, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import os, signal, time; signal.signal(15, signal.SIG_IGN);'\n"
        " 'os.setsid() if os.getpid() != os.getsid(0) else None; print(\"step 2\", flush=True); time.sleep(1000)'])\n"
        + WAITS
    )
    trains(member, code)
    member.sidecar.until(lambda report: step(report) == 2)
    member.hold(2, grace_ms=200)
    wait_for(lambda: not helpers(member.pid))


def test_a_copier_that_dies_costs_no_line_and_no_worker(member: Member, output: Path) -> None:
    code = (
        "import os, time\n"
        "print('step 1')\n"
        "while not os.path.exists(os.environ['DIR'] + '/go'): time.sleep(0.01)\n"
        "for at in range(2, 9000): print('step', at)\n" + WAITS
    )
    trains(member, code)
    member.sidecar.until(lambda report: step(report) == 1)
    (copier,) = helpers(member.pid)
    os.kill(copier, signal.SIGKILL)
    member.file("go").touch()
    told = member.sidecar.until(lambda report: step(report) == 8999)
    assert not told.ends
    assert told.progress is not None
    assert told.progress.first_step == 1
    assert text(output).splitlines() == [f"step {at}" for at in range(1, 9000)]
    assert "the process that reads progress has died; another is started" in member.log


def test_signals_that_a_worker_sends_to_everything_do_not_end_the_copier(member: Member, output: Path) -> None:
    trains(member, f"print('step 1'); {WAITS}")
    member.sidecar.until(lambda report: step(report) == 1)
    (copier,) = helpers(member.pid)
    for one in (*STOP_SIGNALS.values(), signal.SIGHUP):
        os.kill(copier, one)
    member.hold(2)
    assert "has died" not in member.log
    wait_for(lambda: not is_alive(copier))
    assert text(output) == "step 1\n"


def test_a_pattern_that_never_ends_is_given_up_and_each_line_counts(member: Member, output: Path) -> None:
    code = "import os, time\nprint('step 1')\nprint('a' * 40 + '!')\nwhile True: print('on and on'); time.sleep(0.05)\n"
    trains(member, code, source=Source(pattern=r"(a+)+b|step (?P<step>[0-9]+)"))
    wait_for(lambda: "the pattern of progress.source took more than 1 s" in member.log)
    given_up = member.sidecar.until(lambda report: report.progress is not None)
    later = member.sidecar.until(lambda report: moved_at(report) > given_up.sent_ms)
    assert later.progress is not None, "the job goes on"
    assert later.progress.step == 1
    wait_for(lambda: "on and on" in text(output))


def test_a_pattern_for_a_newer_python_is_given_up_at_once(member: Member, output: Path) -> None:
    trains(member, f"print('step 1'); {WAITS}", source=Source(pattern="(?P<step>[0-9]+"))
    told = member.sidecar.until(lambda report: report.progress is not None)
    assert told.progress is not None
    assert told.progress.uncounted
    assert "the pattern of progress.source can't be used with the Python of this image" in member.log
    assert text(output) == "step 1\n"


def test_a_forked_worker_writes_to_the_copier_too(warm: Warm, tmp_path: Path) -> None:
    member = warm.member
    path = tmp_path / "output"
    member.stdout = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    warm.script.write_text(
        "import os, time\nprint('step', 40 + int(os.environ['RANK']))\nos.write(2, b'step 7\\n')\n" + WAITS
    )
    warm.start(sys.executable, str(warm.script), preload="decimal")
    warm.ready()
    for attempt in (1, 2):
        told = member.run(member.hold(attempt), {"RANK": "0"}, {"RANK": "1"}, source=STEPS)
        assert told.warm_start is not None
        assert told.warm_start.forked == 2
        member.sidecar.until(lambda report: step(report) == 41)
    member.finish(3)
    assert sorted(text(path).splitlines()) == ["step 40", "step 40", "step 41", "step 41"]
    os.close(member.stdout)


def test_a_template_without_a_source_keeps_the_streams_of_its_children(warm: Warm, tmp_path: Path) -> None:
    member = warm.member
    path = tmp_path / "output"
    member.stdout = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    warm.script.write_text("print('hello', flush=True)\n" + WAITS)
    warm.start(sys.executable, str(warm.script), preload="decimal")
    warm.ready()
    warm.run()
    wait_for(lambda: text(path) == "hello\n")
    assert warm.told.forked == 1
    os.close(member.stdout)


def test_without_a_source_nothing_is_between_the_worker_and_the_log(member: Member, output: Path) -> None:
    code = f"import os; print('step 1', os.environ.get('PYTHONUNBUFFERED'), flush=True); {WAITS}"
    trains(member, code, source=None)
    wait_for(lambda: text(output) == "step 1 None\n")
    assert helpers(member.pid) == []
    worker = processes.children(member.pid)[0]
    assert Path(f"/proc/{worker}/fd/1").samefile(output)


@pytest.mark.usefixtures("output")
def test_a_copier_outlives_a_supervisor_that_is_killed_but_not_the_worker(member: Member) -> None:
    trains(member, f"print('step 1'); {WAITS}")
    member.sidecar.until(lambda report: step(report) == 1)
    (copier,) = helpers(member.pid)
    (worker,) = (pid for pid in processes.children(member.pid) if pid != copier)
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    assert is_alive(copier)
    assert is_alive(worker)
    member.start(*script(WAITS))
    wait_for(lambda: not is_alive(copier))
    assert not is_alive(worker)


def test_twenty_attempts_leave_no_file_and_no_process(member: Member, output: Path) -> None:
    member.start(*script(f"import os; print('step', os.environ['AT']); {WAITS}"))
    counts = []
    for attempt in range(1, 21):
        member.run(member.hold(attempt, grace_ms=100), {"AT": str(attempt)}, source=STEPS)
        member.sidecar.until(_is_at(attempt))
        wait_for(lambda: len(helpers(member.pid)) == 1)
        counts.append(len(list(Path(f"/proc/{member.pid}/fd").iterdir())))
    assert max(counts[2:]) <= counts[1] + 2
    assert text(output) == "".join(f"step {at}\n" for at in range(1, 21))
    last = member.hold(21)
    assert last.phase is Phase.READY
    wait_for(lambda: not helpers(member.pid))
