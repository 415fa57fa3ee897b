"""Let a Python that starts anywhere below a worker's command run its program in a fork of the template.

A hook (``gangsidecar/start/hook``) asks before the interpreter reads its program; the file beside it has the messages.
The answer may wait for a template that still imports. Then the interpreter stands in for the fork: its launcher sees
its pid, it passes signals on, and it ends as the fork ends. The rule: a program runs once. The interpreter runs it
itself unless it has read ``forked``; and the fork ends with its stand-in, even if that never reads it.

The fork is a child of the supervisor and leads a session of its own, so it is stopped, killed and waited for as every
process of a worker is. A stop asks the fork alone: its stand-in would ask it a second time.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gangsidecar.common import log, now_ms
from gangsidecar.start.link import PARKING, ROOM, files_in
from gangsidecar.supervisor import processes
from gangsidecar.supervisor.event_loop import READ, EventLoop

EXECUTE = b"execute"
MAX_QUESTION_BYTES = 1 << 16
MOST_ASKED = 1024
"""So many interpreters of an attempt are remembered."""
LOOK_MS = 200
"""The time between two looks at who has been stopped or continued."""
_PEER = struct.Struct("3i")
"""Pid, uid and gid."""


class Starting(NamedTuple):
    """An interpreter that has not read its program yet."""

    pid: int
    words: list[str]
    """Its command line."""
    folder: str
    """Its working directory."""
    environment: dict[str, str]
    interpreter: str
    """What kind it is: forks of a template are of the same kind."""
    numbers: list[int]
    """The numbers of its open files."""
    files: list[int]
    """The same files, with our numbers."""
    blocked: list[int]
    leads: bool
    """It leads a process group, as each rank of torchrun does, which kills its ranks by their groups."""


class _StandIn:
    def __init__(self, link: socket.socket, starting: Starting) -> None:
        self.link = link
        self.pid = starting.pid
        self.leads = starting.leads
        self.is_stopped = False


class Handovers:
    """Answers interpreters, and keeps each stand-in and its fork together."""

    def __init__(self, loop: EventLoop, path: str, answer: Callable[[Starting], bytes | int | None]) -> None:
        """Listen at ``path``. ``answer`` returns a line, the pid of a fork that runs, or None: not yet."""
        self._loop = loop
        self._answer = answer
        self._waiting: dict[socket.socket, Starting] = {}  # Those that have no answer yet.
        self._stand_ins: dict[int, _StandIn] = {}  # By the pids of their forks.
        self.asked: dict[int, int] = {}  # When the interpreters of the newest attempt asked, by pid.
        self._looks = False  # A look at who has been stopped is due.
        self._server = socket.socket(socket.AF_UNIX)
        self._server.setblocking(False)  # noqa: FBT003 - its signature
        mask = os.umask(0o077)
        try:
            if os.path.lexists(path):
                os.unlink(path)
            self._server.bind(path)
            self._server.listen(64)
        except OSError as error:
            log("warning", "only the worker's command itself can be forked", socket=path, reason=error)
            return
        finally:
            os.umask(mask)
        loop.watch(self._server, READ, self._accept)

    def close(self) -> None:
        """Answer no more."""
        self._close(self._server)

    def answer_again(self) -> None:
        """Answer those that wait."""
        for link in list(self._waiting):
            self._take_again(link)

    @property
    def stand_ins(self) -> set[int]:
        """The processes that stand in for a fork."""
        return {stand_in.pid for stand_in in self._stand_ins.values()}

    def fork_of(self, pid: int) -> int:
        """Return the process that runs the program that this process was started for."""
        return next((fork for fork, stand_in in self._stand_ins.items() if stand_in.pid == pid), pid)

    def below(self, pid: int) -> list[int]:
        """Return the process itself and all below it, forks in place of their stand-ins."""
        found, waiting = [], [pid]
        while waiting:
            at = self.fork_of(waiting.pop())
            found.append(at)
            waiting.extend(processes.children(at))
        return found

    def ended(self, pid: int, status: int) -> bool:
        """A child was reaped; return whether it was a fork, whose stand-in now ends."""
        stand_in = self._stand_ins.pop(pid, None)
        if stand_in is None:
            return False
        by_signal = os.WIFSIGNALED(status)
        end = f"signal {os.WTERMSIG(status)}\n" if by_signal else f"exit {os.WEXITSTATUS(status)}\n"
        try:
            stand_in.link.send(end.encode())
            if stand_in.is_stopped:
                processes.send([stand_in.pid], signal.SIGCONT)
        except OSError:
            pass  # It has ended.
        self._close(stand_in.link)
        return True

    def _accept(self, _mask: int) -> None:
        try:
            link, _ = self._server.accept()
        except OSError:
            return
        link.setblocking(False)  # noqa: FBT003 - its signature
        pid, uid, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid != os.geteuid() or not processes.is_below(pid, os.getpid()):
            link.close()
            return
        self._loop.watch(link, READ, partial(self._read, link, pid, [b""], []))

    def _read(self, link: socket.socket, pid: int, text: list[bytes], files: list[int], _mask: int) -> None:
        """Read the question; a part of it has come before. Anything else closes the connection."""
        try:
            piece, ancillary, _, _ = link.recvmsg(MAX_QUESTION_BYTES, ROOM, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            piece, ancillary = b"", []
        files += files_in(ancillary)
        text[0] += piece
        question, is_whole, said = text[0].partition(b"\n")
        if piece and not is_whole and len(text[0]) < MAX_QUESTION_BYTES:
            return
        self._loop.forget(link)
        try:
            if said:
                link.send(EXECUTE + b"\n")  # A signal has come meanwhile.
            elif is_whole:
                self._take(link, _starting(pid, os.fsdecode(question), files))
        except (OSError, ValueError) as error:
            log("warning", "a Python of the worker can't be started warm", pid=pid, reason=error)
        finally:
            self._let_go(link, pid, files)

    def _take_again(self, link: socket.socket, _mask: int = 0) -> None:
        """Answer one that has waited, if it hasn't ended."""
        starting = self._waiting.pop(link)
        self._loop.forget(link)
        try:
            said = link.recv(1)  # A signal has come, so it can't wait; or it has ended.
        except BlockingIOError:
            said = None
        except OSError:
            said = b""
        try:
            if said is None:
                self._take(link, starting)
            elif said:
                link.send(EXECUTE + b"\n")
        except (OSError, ValueError) as error:
            log("warning", "a Python of the worker can't be started warm", pid=starting.pid, reason=error)
        finally:
            self._let_go(link, starting.pid, starting.files)

    def _let_go(self, link: socket.socket, pid: int, files: list[int]) -> None:
        """Close what is needed no more."""
        if link in self._waiting:
            return
        for file in files:
            os.close(file)
        if pid not in self.stand_ins:
            link.close()

    def _take(self, link: socket.socket, starting: Starting) -> None:
        """Answer, or have it wait. OSError: it has ended."""
        if len(self.asked) < MOST_ASKED:
            self.asked.setdefault(starting.pid, now_ms())
        answer = self._answer(starting)
        if answer is None:
            self._waiting[link] = starting
            self._loop.watch(link, READ, partial(self._take_again, link))
            return
        if isinstance(answer, bytes):
            link.send(answer + b"\n")
            return
        self._stand_ins[answer] = _StandIn(link, starting)
        self._look_later()
        self._loop.watch(link, READ, partial(self._pass_on, answer))
        try:
            link.send(b"forked\n")
        except OSError:
            processes.send([answer], signal.SIGKILL)  # It has ended, or will read nothing: see `_pass_on`.

    def _pass_on(self, fork: int, _mask: int) -> None:
        """Send the fork the signals that its stand-in got, or end it with its stand-in."""
        stand_in = self._stand_ins.get(fork)
        if stand_in is None:
            return
        try:
            signums = stand_in.link.recv(256)
        except BlockingIOError:
            return
        except OSError:
            signums = b""
        for signum in signums or bytes([signal.SIGKILL]):
            # What killed the stand-in has killed its group, if it leads one; the fork leads its own.
            processes.send([-fork if stand_in.leads and not signums else fork], signum)
        if not signums:
            self._loop.forget(stand_in.link)  # It stays open until the fork was reaped.

    def _look(self) -> None:
        """Stop and continue each stand-in with its fork: no process can catch SIGSTOP."""
        for fork, stand_in in self._stand_ins.items():
            now = {pid: processes.is_stopped(pid) for pid in (stand_in.pid, fork)}
            changed = [pid for pid, is_stopped in now.items() if is_stopped != stand_in.is_stopped]
            if changed:
                stand_in.is_stopped = not stand_in.is_stopped
                processes.send(set(now) - set(changed), signal.SIGSTOP if stand_in.is_stopped else signal.SIGCONT)
        self._looks = False
        self._look_later()

    def _look_later(self) -> None:
        if self._stand_ins and not self._looks:
            self._looks = True
            self._loop.at(now_ms() + LOOK_MS, self._look)

    def _close(self, link: socket.socket) -> None:
        self._loop.forget(link)
        link.close()


def _starting(pid: int, text: str, files: list[int]) -> Starting:
    """Read the question of this process. OSError: it is gone; ValueError: it makes no sense."""
    numbers, blocked, interpreter = text.split("|", 2)
    variables = read_environment(pid)
    variables.pop(PARKING, None)  # It is another in each attempt, and a fork below a launcher doesn't park.
    starting = Starting(
        pid,
        processes.words(pid),
        processes.folder(pid),
        variables,
        interpreter,
        numbers=[int(one) for one in numbers.split()],
        files=files,
        blocked=[int(one) for one in blocked.split()],
        leads=os.getpgid(pid) == pid,
    )
    if len(starting.numbers) != len(files):
        raise ValueError("not all of its open files came")
    return starting


def read_environment(pid: int) -> dict[str, str]:
    """Return the environment with which a process was executed. OSError: it is gone, or another user's."""
    entries = processes.environment(pid)
    if not entries:
        raise OSError("its environment can't be read")
    found: dict[str, str] = {}
    for name, equals, value in (os.fsdecode(entry).partition("=") for entry in entries):
        if equals:
            found.setdefault(name, value)
    return found
