"""The stacks of a worker that hangs: what each thread of each of its processes is doing, in Python and in the kernel.

The rule: to look must not change what is looked at. A process gets the signal for its own stacks only if it catches it
and has the file for them open (:mod:`gangclient` sees to both), and ``py-spy`` does not halt it; only for native frames
it does, for some milliseconds, and only the process that is looked at first. What could block on
the memory of a process (its command line, its maps) is not read. This runs in a forked helper with a deadline, and
says piece by piece what it knows.

For each process::

    process 4711 (python3)
      Python:
        wait (/usr/lib/python3.11/threading.py:320)
      thread 4711 (python3): sleeping in futex_wait_queue, system call 202
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial

from gangsidecar.common import now_ms
from gangsidecar.supervisor import processes
from gangsidecar.supervisor.event_loop import fork

SIGNAL = 59
"""The signal at which a process writes its Python stacks, if it catches it: a real-time one that no library takes."""
FILE = "gang-stacks"
"""The name of the memory file into which it does."""
MAX_CHARACTERS = 8_000
"""Characters of all; a message has room for a few more."""
MIN_CHARACTERS = 250
"""Characters of one process: what its first thread does, and its innermost frames."""
FIRST_THREAD = 90
"""Characters of a line of a thread, and of a mark."""
OWN_MS = 300
"""The time that a process gets to write its stacks: without an answer it can take no signal."""
SETTLED_MS, BUSY_MS = 20, 100
"""When it has written nothing for so long, it has written all; the latter if it has threads that run meanwhile."""
PY_SPY = "py-spy"
PY_SPY_MS = 700
NATIVE_MS = 600
"""The time that it gets for native frames too: it must read the symbols of all libraries."""
MAIN, OTHER = "Python", "Python, another thread"
_POLL_SECONDS = 0.005
_MOST_BYTES = 1 << 20
_MOST_FRAMES = 40
_MOST_THREADS = 500
"""To look at one takes 50 microseconds."""
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked (state D)",
    "T": "stopped by a signal",
    "t": "halted by a debugger",
    "Z": "ended",
}
_TAKES_SIGNALS = frozenset("RS")
_PYTHON = re.compile(r"python[0-9.]*t?|pypy[0-9.]*")
_FRAME = re.compile(r'  File "(.*)", line (\S+) in (.*)')
_MARK = "      ...\n"
"""In place of lines that are left out."""
_UNKNOWN = "  Python: unknown; let the script call gangclient.connect(), or add py-spy to the image\n"
_UNABLE = "  Python: unknown; no thread of it can take a signal, and there is no py-spy that may look\n"

Section = tuple[str, tuple[str, ...]]
"""A title, and frames, innermost first."""


class Thread:
    """A thread as the kernel shows it."""

    def __init__(self, folder: str) -> None:
        self.name = _name(folder)
        self.state = _state(folder)
        where = _read(f"{folder}/wchan")
        call = (_read(f"{folder}/syscall").split() or ["?"])[0]
        self.doing = _STATES.get(self.state, f"state {self.state}")
        self.doing += f" in {where}" if where not in {"", "0"} else ""
        self.doing += f", system call {call}" if call.isdigit() else ""
        frames = (line.partition("] ")[2] for line in _read(f"{folder}/stack").splitlines())
        self.frames = tuple(frame for frame in frames if frame)


def take(of: int, without: set[int], until_ms: int, first: int | None = None) -> Iterator[str]:
    """The stacks of everything below the process ``of`` but these, in pieces of printable ASCII.

    Args:
        of: the supervisor.
        without: processes that belong to no worker, are parked, or stand in for another; this one is left out too.
        until_ms: when to be done, on this machine's clock.
        first: the process to begin with, if one is suspected.
    """
    found = sorted(processes.descendants(of, {*without, os.getpid()}), key=lambda pid: (pid != first, pid))
    left = MAX_CHARACTERS
    for at, pid in enumerate(found):
        if left < MIN_CHARACTERS or now_ms() >= until_ms:
            yield f"and {len(found) - at} more processes\n"
            return
        share = max(MIN_CHARACTERS, left // (len(found) - at))
        for piece in _process(pid, share, until_ms):
            left -= len(piece)
            yield piece


def _process(pid: int, limit: int, until_ms: int) -> Iterator[str]:
    """Yield what is known of one process, in at most so many characters."""
    head = _plain(f"process {pid} ({_name(f'/proc/{pid}')})\n")
    yield head
    try:
        tasks = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        yield "  ended\n"
        return
    threads = {task: Thread(f"/proc/{pid}/task/{task}") for task in tasks[:_MOST_THREADS]}
    of_kernel = _cut(_plain("".join(_kernel(threads))), max(FIRST_THREAD, (limit - len(head)) // 3))
    yield _cut(_plain(_python(pid, threads, until_ms)), limit - len(head) - len(of_kernel))
    yield of_kernel


def _kernel(threads: dict[int, Thread]) -> Iterator[str]:
    """Yield the first thread, which has the number of its process, first; threads that do the same as one."""
    alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for task, thread in threads.items():
        alike.setdefault((thread.doing, thread.frames), []).append(task)
    for (doing, frames), tasks in alike.items():
        others = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
        yield f"  thread {tasks[0]} ({threads[tasks[0]].name}){others}: {doing}\n"
        yield from _lines(frames, "      ")


def _python(pid: int, threads: dict[int, Thread], until_ms: int) -> str:
    """Return the Python stacks; empty for a process that doesn't run Python, as far as can be seen."""
    is_able = any(thread.state in _TAKES_SIGNALS for thread in threads.values())
    is_python = _PYTHON.fullmatch(os.path.basename(_link(f"/proc/{pid}/exe").partition(" ")[0])) is not None
    sections: list[Section] = []
    if is_python and is_able and until_ms - now_ms() > NATIVE_MS + OWN_MS:
        sections = _py_spy(pid, "--native", now_ms() + NATIVE_MS)
    if not sections and is_able:
        sections = _own(pid, until_ms)
    if not sections and is_python:
        sections = _py_spy(pid, "--nonblocking", min(until_ms, now_ms() + PY_SPY_MS))
    if not sections:
        return (_UNKNOWN if is_able else _UNABLE) if is_python else ""
    alike: dict[Section, int] = {}
    for section in sections:
        alike[section] = alike.get(section, 0) + 1
    lines = []
    for (title, frames), count in alike.items():
        lines.append(f"  {title}{f', {count} times' if count > 1 else ''}:\n")
        lines += _lines(frames, "    ")
    return "".join(lines)


def _own(pid: int, until_ms: int) -> list[Section]:
    """Return what the process writes itself when it gets the signal; nothing if it has not offered that."""
    file = _file_of(pid) if _catches(pid) else None
    if file is None:
        return []
    try:
        before = size = os.fstat(file).st_size
        os.kill(pid, SIGNAL)
        grown = now_ms()
        until = min(until_ms, grown + OWN_MS)
        while now_ms() < until and (size == before or not _is_settled(pid, now_ms() - grown)):
            time.sleep(_POLL_SECONDS)
            now = os.fstat(file).st_size
            if now != size:
                size, grown = now, now_ms()
        begin = max(before, size - _MOST_BYTES)  # The thread that took the signal comes last.
        return _of_faulthandler(os.pread(file, size - begin, begin).decode(errors="replace"))
    except OSError:
        return []
    finally:
        os.close(file)


def _is_settled(pid: int, quiet_ms: int) -> bool:
    """Return whether no thread of it can be in the middle of writing: it would run, or wait for a processor."""
    if not SETTLED_MS < quiet_ms < BUSY_MS:
        return quiet_ms >= BUSY_MS
    try:
        tasks = os.listdir(f"/proc/{pid}/task")[:_MOST_THREADS]
    except OSError:
        return True
    return all(_state(f"/proc/{pid}/task/{task}") != "R" for task in tasks)


def _catches(pid: int) -> bool:
    for line in _read(f"/proc/{pid}/status").splitlines():
        name, _, mask = line.partition(":")
        if name == "SigCgt":
            return bool(int(mask, 16) >> (SIGNAL - 1) & 1)
    return False


def _file_of(pid: int) -> int | None:
    """The memory file of the process, opened to be read."""
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            if _link(f"{folder}/{name}").startswith(f"/memfd:{FILE} "):
                return os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    return None


def _of_faulthandler(text: str) -> list[Section]:
    """The thread that took the signal comes first: the kernel chooses the main thread, if that can take it."""
    first: list[Section] = []
    others: list[Section] = []
    for part in text.split("\n\n"):
        head, _, rest = part.strip("\n").partition("\n")
        if head:
            into, title = (first, MAIN) if head.startswith("Current") else (others, OTHER)
            into.append((title, tuple(_FRAME.sub(r"\3 (\1:\2)", line).strip() for line in rest.split("\n"))))
    return first + others


def _py_spy(pid: int, how: str, until_ms: int) -> list[Section]:
    """Return what py-spy finds, if the image has it and the pod lets it look. OSError: no process can be started."""
    program = next(filter(os.path.isfile, (os.path.join(one, PY_SPY) for one in os.get_exec_path())), "")
    if not program:
        return []
    child, pipe = fork(partial(_execute, [program, "dump", how, "--pid", str(pid)]))
    pieces = [b""]
    while select.select([pipe], [], [], max(0, until_ms - now_ms()) / 1000)[0]:
        pieces.append(os.read(pipe, _MOST_BYTES))
        if not pieces[-1]:
            break
    os.close(pipe)
    processes.send([child], signal.SIGKILL)
    return _of_py_spy(b"".join(pieces).decode(errors="replace"))


def _execute(command: list[str], out: int) -> None:
    """Become this program, which ends with its parent."""
    os.dup2(out, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.execv(command[0], command)  # noqa: S606 - no shell is what is wanted


def _of_py_spy(text: str) -> list[Section]:
    """The main thread comes first."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("Thread "):
            found.append((MAIN if line.endswith('"MainThread"') else OTHER, []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line.strip())
    return sorted(((title, tuple(frames)) for title, frames in found), key=lambda one: one[0] != MAIN)


def _state(folder: str) -> str:
    return (_read(f"{folder}/stat").rpartition(")")[2].split() or ["?"])[0]


def _name(folder: str) -> str:
    return _read(f"{folder}/comm").strip().replace("\n", "?")


def _read(path: str) -> str:
    """Read a file of the kernel; empty if it can't be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return (file.read(_MOST_BYTES) or b"").decode(errors="replace")
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _plain(text: str) -> str:
    """Printable ASCII and line breaks."""
    shown = text.encode("ascii", "backslashreplace").decode()
    return "".join(letter if letter == "\n" or " " <= letter <= "~" else "?" for letter in shown)


def _lines(frames: Sequence[str], indent: str) -> Iterator[str]:
    yield from (f"{indent}{frame}\n" for frame in frames[:_MOST_FRAMES])
    yield from [_MARK] if len(frames) > _MOST_FRAMES else []


def _cut(text: str, limit: int) -> str:
    """As many whole lines as fit, and a mark where some don't."""
    if len(text) <= limit:
        return text
    return text[: text.rfind("\n", 0, max(0, limit - len(_MARK))) + 1] + _MARK
