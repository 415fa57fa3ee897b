"""Hand the start of this interpreter's program over to a fork of the supervisor's template, and stand in for it.

The interpreter asks the supervisor before it has read its program. It sends all open files that a program would get,
and what kind of interpreter it is. The supervisor answers with a line::

    execute                    start as always
    record ARCHIVE FILE        the same, and append what is imported to FILE (the words are separated by NUL)
    forked                     the program runs in a fork; then ``exit 3`` or ``signal 9`` says how that ended

The answer may wait for a template that still imports. If a signal comes meanwhile, this process sends a zero byte, and
gets its answer at once.

After ``forked`` this process stands in for the fork: its launcher sees its pid. It passes on each signal that it can
catch, as a byte, and ends as the fork did. When either ends, the supervisor ends the other.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` would import enum into every start
import _socket
import os
import sys

SOCKET = "GANG_WARM_STARTS"
"""The variable with the path of the supervisor's socket."""
PARKING = "GANG_PARKING"
"""The variable with the channel of a process that was executed; a fork does not get it."""
LOOK_SECONDS = 0.1
"""While the answer waits, the time between two looks for signals."""
STAND_IN_SECONDS = 3600.0
"""A socket that signals are written to must not block, and has a limit for each wait; after it, the next begins."""
MOST_FILES = 250
"""The kernel passes 253 with one message."""
OWN = (_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD, _signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE)
"""Signals that the stand-in can't catch, or that mean itself."""


class Link(_socket.socket):
    """The connection to the supervisor. A piece that arrives may be a part of a line, or more than a line."""

    received = b""

    def line(self) -> bytes:
        """Return the next line; empty if the supervisor has gone. After a timeout, what has arrived is kept."""
        while b"\n" not in self.received:
            piece = self.recv(4096)
            if not piece:
                return b""
            self.received += piece
        line, _, self.received = self.received.partition(b"\n")
        return line


def interpreter() -> str:
    """Return what makes two interpreters alike, as a line.

    The mode UTF-8 follows from -X, PYTHONUTF8 and the locale, but not in what a Python starts whose locale is C.
    """
    options = getattr(sys, "_xoptions", {})
    places = sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix
    flags = repr(sys.flags).replace("utf8_mode=1", "utf8_mode=0")
    return repr((sys.version, places, flags, sys.warnoptions, sorted(options.items())))


def begin() -> None:
    """Ask; return if this process is to run its program itself, or runs it already."""
    path = os.environ.get(SOCKET)
    if not path or sys.flags.no_site:  # With -S, only the program itself can have called ``site``.
        return
    try:
        _signal.set_wakeup_fd(-1)  # As it is when Python starts.
    except ValueError:
        return  # A subinterpreter: CPython runs ``site`` in each.
    files = _files()
    # What comes meanwhile waits for the program, or for the handlers of a stand-in.
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    link = Link(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.connect(path)
        rights = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
        line = f"{_listed(files)}|{_listed(sorted(map(int, blocked)))}|{interpreter()}\n"
        link.sendmsg([os.fsencode(line)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if files else [])
        verb, *words = _answer(link).split(b"\0")
        if verb == b"forked":
            _stand_in(link, files, blocked)
    finally:
        link.close()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
    if verb == b"record":
        _record(*map(os.fsdecode, words))


def _listed(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


def _files() -> list[int]:
    """Return the open files that a program would get."""
    parking = os.environ.get(PARKING, "").partition(":")[0]
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if name != parking and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue  # With it the folder was listed.
    if len(found) > MOST_FILES:
        raise OSError("too many open files")
    return sorted(found)


def _answer(link: Link) -> bytes:
    link.settimeout(LOOK_SECONDS)
    while True:
        try:
            return link.line()
        except _socket.timeout:
            if _signal.sigpending():
                link.send(b"\0")
                link.settimeout(None)


def _record(archive: str, file: str) -> None:
    sys.path.insert(0, archive)
    try:
        from gangsidecar.start.recorder import Recorder  # noqa: PLC0415 - only now it can be found

        sys.meta_path.insert(0, Recorder(file))
    finally:
        sys.path.remove(archive)
        sys.path_importer_cache.pop(archive, None)
        for name in [name for name in sys.modules if name.partition(".")[0] == "gangsidecar"]:
            del sys.modules[name]


def _stand_in(link: Link, files: list[int], blocked: set[int]) -> None:
    """Never returns."""
    try:
        # Not in a handler: Python calls one that comes just before a wait only when the wait is over.
        link.settimeout(STAND_IN_SECONDS)
        _signal.set_wakeup_fd(link.fileno(), warn_on_full_buffer=False)
        for signum in range(1, _signal.NSIG):
            if signum not in OWN and _signal.getsignal(signum) not in {None, _signal.SIG_IGN}:
                _signal.signal(signum, lambda *_: None)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
        for file in files:  # The fork has them: what it closes is closed.
            os.close(file)
        how, _, number = _end(link).partition(b" ")
        if how == b"exit":
            os._exit(int(number))
        signum = int(number) if how == b"signal" else _signal.SIGKILL  # The supervisor has gone.
        _end_by(signum)
    except BaseException:  # noqa: BLE001 - the fork runs the program, and ends with this process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _end(link: Link) -> bytes:
    """Wait until the fork has ended."""
    while True:
        try:
            return link.line()
        except _socket.timeout:
            continue


def _end_by(signum: int) -> None:
    import resource  # noqa: PLC0415 - few need it

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    # The fork has dumped. With 1 there is no file either, and unlike with 0, no program that takes cores is started.
    resource.setrlimit(resource.RLIMIT_CORE, (1 if most else 0, most))
    if signum not in {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(signum, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [signum])
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)
