"""The stacks of a worker that hangs, with real processes: what is told, who is left in peace, and how long it takes."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

import gangclient
from gangclient import _client
from gangctl.api.incident import Stacks
from gangctl.core.record.incidents import innermost
from gangsidecar import wire
from gangsidecar.common import now_ms
from gangsidecar.supervisor import stacks
from gangsidecar.wire import Report
from tests.pythons import every
from tests.sidecar.supervisor import patient
from tests.sidecar.supervisor.supervised import Member, is_alive, shell, wait_for

CLIENT = Path(gangclient.__file__).parents[1]
HUNG = """
import os, signal, sys, threading
import gangclient
gang = gangclient.connect()

def all_reduce():
    lock = threading.Lock()
    lock.acquire()
    open(os.environ["DIR"] + "/pids", "a").write(f"{os.getpid()}\\n")
    lock.acquire()

"""


@pytest.fixture(scope="module")
def archive(patient_archive: Path) -> Path:
    return patient_archive


@pytest.fixture(autouse=True)
def _no_py_spy(py_spy: Path) -> None:
    """Hide the one that this machine may have: it tells more."""
    py_spy.write_text("#!/bin/sh\nexit 1\n")
    py_spy.chmod(0o755)


def hang(member: Member, *command: str, offers: bool = True, processes: int = 1) -> Report:
    """Let the worker train, and stop it for a hang as soon as it has noted its pid. Returns the report of Ready."""
    member.start(*command)
    socket = {"GANG_SOCKET": "/no/where"} if offers else {}
    member.run(member.hold(1), *[{"PYTHONPATH": str(CLIENT), **socket}] * processes)
    wait_for(lambda: len(member.workers()) == processes)
    return member.hold(2, stacks=True)


def told(report: Report) -> str:
    assert report.stacks is not None
    assert report.stacks.attempt == 1
    assert report.stop_ms is not None
    return report.stacks.text


def script(member: Member, code: str) -> tuple[str, str]:
    member.file("train.py").write_text(code)
    return sys.executable, str(member.file("train.py"))


def test_both_sides_mean_the_same_signal_and_file() -> None:
    assert (_client.SIGNAL, _client.FILE) == (stacks.SIGNAL, stacks.FILE)


def test_a_script_that_connects_tells_the_function_it_hangs_in(member: Member) -> None:
    idle = "for _ in range(3):\n    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    report = hang(member, *script(member, HUNG + idle + "all_reduce()\n"))
    lines = told(report).splitlines()
    assert lines[0].startswith(f"process {member.workers()[0]} (python")
    assert lines[1] == "  Python:"
    assert lines[2].startswith("    all_reduce (")
    assert lines[2].endswith("train.py:10)")
    assert lines[3].startswith("    <module> (")
    assert "  Python, another thread, 3 times:" in lines
    assert any(line.startswith(f"  thread {member.workers()[0]} (") for line in lines)
    assert [(end.signal, end.stopped) for end in report.ends] == [(15, True)], "and then it was stopped as ever"


@pytest.mark.parametrize("python", [path for minor, path in every().items() if minor >= 8], ids=lambda p: Path(p).name)
def test_every_python_tells_it(member: Member, python: str) -> None:
    report = hang(member, python, script(member, HUNG + "all_reduce()\n")[1])
    lines = told(report).splitlines()
    assert lines[1] == "  Python:"
    assert lines[2].startswith("    all_reduce (")


def test_the_stop_goes_on_when_the_stacks_are_there(member: Member) -> None:
    report = hang(member, *script(member, HUNG + "all_reduce()\n"))
    assert report.stop_ms is not None
    assert report.stop_ms < patient.STACKS_MS


def test_a_process_that_is_stopped_is_told_as_such(member: Member) -> None:
    member.start(*shell("exec sleep 1000"))
    member.run(member.hold(1))
    pid = member.workers()[0]
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text())
    report = member.hold(2, stacks=True)
    assert f"  thread {pid} (sleep): stopped by a signal" in told(report)
    assert [end.signal for end in report.ends] == [15]


def test_a_script_that_the_kernel_blocks_is_told_with_its_place_and_not_asked(member: Member) -> None:
    spawns = """
os.mkfifo(os.environ["DIR"] + "/fifo")
open(os.environ["DIR"] + "/pids", "a").write(f"{os.getpid()}\\n")
actions = [(os.POSIX_SPAWN_OPEN, 0, os.environ["DIR"] + "/fifo", os.O_RDONLY, 0)]
os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)  # It waits for its child, which waits for a writer.
"""
    member.start(*script(member, HUNG + spawns))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    (pid,) = member.workers()
    wait_for(lambda: "D (disk sleep)" in Path(f"/proc/{pid}/status").read_text())
    report = member.hold(2, stacks=True, grace_ms=1_000)
    first, second = told(report).split("\nprocess ")
    assert re.search(rf"\n  thread {pid} \(python.*\): blocked \(state D\)( in \w+)?", first)
    assert "Python: unknown; no thread of it can take a signal" in first
    assert ": sleeping" in second
    assert [end.signal for end in report.ends] == [9]


def test_a_script_that_is_stopped_is_not_asked(member: Member) -> None:
    member.start(*script(member, HUNG + "all_reduce()\n"))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    (pid,) = member.workers()
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text())
    text = "".join(stacks.take(member.pid, set(), now_ms() + 1_000))
    assert f"  thread {pid} (python" in text
    assert "stopped by a signal" in text
    assert "Python: unknown; no thread of it can take a signal" in text
    assert "ShdPnd:\t0000000000000000\n" in Path(f"/proc/{pid}/status").read_text(), "no signal waits for it"


def test_a_script_that_ignores_sigterm_is_looked_at_and_killed_when_its_grace_is_over(member: Member) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pthread_sigmask(signal.SIG_BLOCK, {59})\n"
    member.start(*script(member, HUNG + deaf + "all_reduce()\n"))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    member.workers()
    grace = 8_000
    report = member.hold(2, stacks=True, grace_ms=grace)  # The look takes half of it.
    assert report.stacks is not None
    assert report.stop_ms is not None
    assert report.killed_ms is not None
    assert grace <= report.killed_ms < grace + 3_500, "the look is a part of the grace"


def test_a_program_that_offers_nothing_gets_no_signal_but_sigterm(member: Member) -> None:
    report = hang(member, *shell("exec sleep 1000"))
    assert [end.signal for end in report.ends] == [15]
    assert "(sleep): sleeping" in told(report)
    assert "Python" not in told(report)


@pytest.mark.parametrize(
    "offer",
    [
        "signal.signal(59, lambda *_: open(os.environ['DIR'] + '/asked', 'w'))",  # its own use of the signal
        "os.memfd_create('gang-stacks')",  # a file, but the signal would kill it
        "signal.signal(59, signal.SIG_IGN); os.memfd_create('gang-stacks')",
    ],
)
def test_half_an_offer_is_none(member: Member, offer: str) -> None:
    code = HUNG + f"keep = {offer}\n" if "; " not in offer else HUNG + offer.replace("; ", "\nkeep = ") + "\n"
    report = hang(member, *script(member, code + "all_reduce()\n"), offers=False)
    assert "Python: unknown; let the script call gangclient.connect()" in told(report)
    assert [end.signal for end in report.ends] == [15]
    assert not member.file("asked").exists()


def test_what_a_script_has_forked_tells_its_own_stacks(member: Member) -> None:
    forks = """
def load():
    all_reduce()

if os.fork() == 0:
    load()
all_reduce()
"""
    member.start(*script(member, HUNG + forks))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    parent, child = sorted(wait_for(lambda: len(member.workers()) == 2 and member.workers()))
    first, second = told(member.hold(2, stacks=True)).split("\nprocess ")
    assert first.startswith(f"process {parent} ")
    assert second.startswith(f"{child} ")
    assert "    load (" in second
    assert "    load (" not in first


def test_sixty_processes_are_told_within_the_limit_of_a_message(member: Member) -> None:
    report = hang(member, *shell("exec sleep 1000"), processes=60)
    text = told(report)
    assert len(text) <= wire.MAX_STRING
    assert text.count("process ") >= 30
    named = sum(text.count(name) for name in ("(sleep): ", "(sh): "))  # One may not have executed sleep yet.
    assert text.splitlines()[-1].endswith("more processes") or named == 60


def test_each_of_sixteen_ranks_tells_its_innermost_frame(member: Member) -> None:
    deep = "def deeper(n):\n    return deeper(n - 1) if n else all_reduce()\n"
    forks = "for _ in range(15):\n    if os.fork() == 0:\n        break\n"
    member.start(*script(member, HUNG + deep + forks + "deeper(90)\n"))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    wait_for(lambda: len(member.workers()) == 16)
    text = told(member.hold(2, stacks=True))
    assert len(text) <= wire.MAX_STRING
    processes = text.split("process ")[1:]
    assert len(processes) == 16
    assert all("\n  Python:\n    all_reduce (" in one and "\n  thread " in one for one in processes)


def test_a_script_cannot_make_the_text_larger_or_move_a_cursor(member: Member) -> None:
    evil = """
sys.setrecursionlimit(5000)
exec("def \u00e9(n):\\n    return \u00e9(n - 1) if n else all_reduce()")
def deeper(n):
    return deeper(n - 1) if n else \u00e9(0)
open("/proc/self/comm", "w").write("a\\x1b[2Jb\\nc")
for _ in range(90):
    threading.Thread(target=deeper, args=(90,), daemon=True).start()
deeper(200)
"""
    member.start(*script(member, HUNG + evil))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    wait_for(lambda: len(member.workers()) == 91)
    text = told(member.hold(2, stacks=True))
    assert len(text) <= wire.MAX_STRING
    assert text.replace("\n", "").isprintable()
    assert text.isascii()
    assert text.startswith(f"process {member.workers()[0]} (a?[2Jb?c)\n  Python:\n")
    assert "\n  thread " in text, "what the kernel tells has its share"
    assert "\n      ...\n" in text, "and what is left out is marked"
    assert innermost(Stacks(member="worker-0", text=text)) == text.splitlines()[2].strip()


def test_py_spy_is_asked_where_the_script_offers_nothing(member: Member, py_spy: Path) -> None:
    py_spy.write_text(
        """#!/bin/sh
echo "$@" >> "$DIR/asked"
case "$2" in --native) exit 1;; esac  # As where it may not halt a process.
cat <<'.'
Process 7: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 8 (idle): "loader"
    get (queue.py:171)
Thread 7 (idle): "MainThread"
    all_reduce (dist.py:12)
    <module> (train.py:3)
.
"""
    )
    py_spy.chmod(0o755)
    report = hang(member, *script(member, HUNG + "all_reduce()\n"), offers=False)
    pid = member.workers()[0]
    assert told(report).splitlines()[1:6] == [
        "  Python:",
        "    all_reduce (dist.py:12)",
        "    <module> (train.py:3)",
        "  Python, another thread:",
        "    get (queue.py:171)",
    ]
    asked = member.file("asked").read_text()
    assert asked == f"dump --native --pid {pid}\ndump --nonblocking --pid {pid}\n"


def test_a_script_that_takes_no_signal_is_waited_for_a_moment_only(member: Member) -> None:
    blocks = "signal.pthread_sigmask(signal.SIG_BLOCK, {59})\n"
    report = hang(member, *script(member, HUNG + blocks + "all_reduce()\n"))
    assert "Python: unknown" in told(report)
    assert report.stop_ms is not None
    assert patient.OWN_MS <= report.stop_ms < patient.STACKS_MS


def test_a_py_spy_that_hangs_is_not_waited_for_and_does_not_stay(member: Member, py_spy: Path) -> None:
    py_spy.write_text(
        """#!/bin/sh
case "$2" in --native) exit 1;; esac
echo $$ > "$DIR/spy"
exec sleep 1000
"""
    )
    py_spy.chmod(0o755)
    report = hang(member, *script(member, HUNG + "all_reduce()\n"), offers=False)
    assert "Python: unknown" in told(report)
    assert report.stop_ms is not None
    assert patient.PY_SPY_MS <= report.stop_ms < patient.STACKS_MS
    wait_for(lambda: not is_alive(int(member.file("spy").read_text())))


def test_an_ordinary_stop_looks_at_nothing(member: Member) -> None:
    member.start(*script(member, HUNG + "all_reduce()\n"))
    member.run(member.hold(1), {"PYTHONPATH": str(CLIENT), "GANG_SOCKET": "/no/where"})
    member.workers()
    assert member.hold(2).stacks is None


def test_the_next_worker_starts_without_the_stacks_of_the_last(member: Member) -> None:
    report = hang(member, *shell("exec sleep 1000"))
    assert member.run(report).stacks is None
