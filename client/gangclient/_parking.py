"""Park a process between two attempts: the channel to the supervisor, and what must not or must go on with the process.

**The channel.** Lines of JSON; the other end, with the list of messages, is the supervisor's ``connections.py``. A
daemon thread listens, and reports a stop as soon as it comes; it never interrupts anything itself. A parked process
whose supervisor is gone ends at once: nothing could let it go on, or stop it.

**The helper processes of multiprocessing.** None is left when the process parks, and what globals hold goes on. The
standard library starts them again when it needs them. The fork server ends as at the end of a process. The resource
tracker must not: it would unlink all that is registered, also shared memory and semaphores that are still in use. So it
is killed. The next one learns what this process has made and still holds; it must never learn what belongs to another
process, since it unlinks that in the end.

**Random states.** Each attempt begins with those that the script had when it called :func:`gangclient.run`. So an
attempt in a process that has survived begins as one in a new process does whose script sets its seeds before it calls
``run``; all ranks draw alike then, those that were started anew and those that were not. A library that was not
imported at that time keeps its state.

**The first rank.** A process that goes on waits for the rank that the others connect to. Ranks that go on begin within
milliseconds of each other. PyTorch's store is served by rank 0, and a rank that connects too early tries again only
after 250 to 750 ms: longer than all the rest of the restart. So each other rank looks for the port first. It never
waits longer than :data:`FIRST_RANK_SECONDS`, and never for a framework that has no such store.
``gangsidecar.start.template`` does the same for processes that are forked; neither may import the other.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
import weakref
from itertools import chain
from queue import SimpleQueue
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from gangclient._client import Event

VARIABLE = "GANG_PARKING"
MARGIN = 0.5
"""Seconds before SIGKILL at which a process that hasn't parked says where it is."""
_PIECE = 1 << 16
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger("gangclient")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the kernel has it
STORE_USER = "torch.distributed"
"""Without it there is no store at MASTER_PORT."""
FIRST_RANK_SECONDS = 0.3
"""A rank that waits for longer loses no less than by its own next try."""
AGAIN_SECONDS = 0.01


class NextAttempt(NamedTuple):
    """The next attempt of a parked process."""

    number: int
    environment: Dict[str, str]
    """Variables to set."""
    without: List[str]
    """Variables to delete."""


class Channel:
    """Our end. One thread listens, the main thread speaks."""

    def __init__(self, ours: socket.socket, on_stop: Callable[[Event], None], on_late: Callable[[], None]) -> None:
        """Say that this process can park, and listen. OSError, RuntimeError: no supervisor, or no thread.

        ``on_stop`` is called in the listening thread for each stop, and must return at once; ``on_late`` a moment
        before SIGKILL if the process hasn't parked.
        """
        self._socket = ours
        self._on_stop = on_stop
        self._on_late = on_late
        self._attempts: SimpleQueue[NextAttempt] = SimpleQueue()
        self._parked = False
        self._open = True
        self._late_at: Optional[float] = None
        self._say(parkable=True)
        threading.Thread(target=self._listen, name="gangclient-parking", daemon=True).start()
        os.register_at_fork(after_in_child=ours.close)  # A child must not keep it, and can't use it.

    def park(self, attempt: int) -> NextAttempt:
        """Say that nothing of this attempt runs any more, and wait for the next one."""
        self._late_at = None
        self._parked = True
        try:
            self._say(parked=attempt)
        except OSError:
            os._exit(1)  # The supervisor is gone. The next one kills this process in any case.
        following = self._attempts.get()
        self._parked = False
        return following

    def close(self) -> None:
        """This process can't park any more. The supervisor sends SIGTERM, also for a stop that is on its way."""
        self._open = False
        self._late_at = None
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            _log.debug("the supervisor is gone: %s", error)

    def _say(self, **message: Any) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        unread = b""
        while True:
            late_at = self._late_at  # The main thread takes it away at any moment: it is read once.
            left = None if late_at is None else max(0.0, late_at - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                if self._late_at is not None:
                    self._late_at = None
                    self._on_late()
                continue
            try:
                piece = self._socket.recv(_PIECE)
            except OSError:
                piece = b""
            if not piece:
                if self._parked:
                    os._exit(1)
                return
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, message: Dict[str, Any]) -> None:
        if "refused" in message:
            _log.warning("this process can't restart inside: %s. It is started anew instead", message["refused"])
        elif "run" in message:
            run = message["run"]
            self._attempts.put(NextAttempt(run["attempt"], run["set"], run["unset"]))
        elif "stop" in message and self._open:
            stop = message["stop"]
            seconds = stop["seconds"]
            self._late_at = time.monotonic() + max(seconds / 2, seconds - MARGIN)
            self._on_stop(Event("stop", stop["attempt"], stop["reason"], stop["planned"], seconds))


def find_channel() -> Optional[socket.socket]:
    """Find our end, if this process is the one that the supervisor has started; call it once."""
    descriptor, _, inode = os.environ.pop(VARIABLE, "").partition(":")
    try:
        found = os.fstat(int(descriptor))
        if not stat.S_ISSOCK(found.st_mode) or found.st_ino != int(inode):
            return None
        ours = socket.socket(fileno=int(descriptor))
    except (OSError, ValueError, OverflowError):
        return None
    ours.set_inheritable(False)
    peer = _CREDENTIALS.unpack(ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    if peer != os.getppid():
        ours.close()  # It was inherited: this process's parent, or one further up, is the one.
        return None
    return ours


class Helpers:
    """Those of this process."""

    def __init__(self) -> None:
        """Before what is there by now is frozen: :func:`gc.get_objects` doesn't have it afterwards."""
        early = _registrable(gc.get_objects()) if _tracker_runs() else ()
        self._early = [weakref.ref(one) for one in early]
        self._registered: Set[Tuple[str, str]] = set()  # For the next tracker: name and kind.

    def end(self) -> None:
        """End them; where a child is left, the supervisor ends them with it."""
        early = (one() for one in self._early)
        self._registered = set(_registered(chain(early, gc.get_objects()))) if _tracker_runs() else set()
        processes: Any = sys.modules.get("multiprocessing")
        if processes is None or processes.active_children():
            return  # They have open what the fork server waits for.
        stop: Any = _attribute("forkserver", "_forkserver", "_stop")
        if stop is not None:
            stop()
        _kill_tracker()

    def go_on(self) -> None:
        """Tell the next tracker, where there was one."""
        _kill_tracker()  # The supervisor may have done it: the standard library would warn that it has died.
        for name, kind in sorted(self._registered):
            sys.modules["multiprocessing.resource_tracker"].register(name, kind)


def _kill_tracker() -> None:
    """Kill it, if it is a child of this process."""
    tracker: Any = _attribute("resource_tracker", "_resource_tracker")
    pid, file = getattr(tracker, "_pid", None), getattr(tracker, "_fd", None)
    if pid is None or file is None:
        return
    try:
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except ChildProcessError:
        return  # This process was forked from the one that has started it.
    with tracker._lock:  # noqa: SLF001 - it has no other way to tell that it must be started again
        tracker._fd = tracker._pid = None  # noqa: SLF001
    os.close(file)


def _tracker_runs() -> bool:
    return _attribute("resource_tracker", "_resource_tracker", "_fd") is not None


def _memory() -> Any:
    """The class, or nothing where it isn't imported."""
    return _attribute("shared_memory", "SharedMemory") or ()


def _registrable(objects: Iterable[object]) -> Iterator[Any]:
    """Those of the two classes that the standard library registers."""
    classes = (_memory(), _attribute("synchronize", "SemLock") or ())
    return (one for one in objects if issubclass(type(one), classes))


def _registered(objects: Iterable[object]) -> Iterator[Tuple[str, str]]:
    """Yield what this process has made, has registered as the standard library does, and still holds."""
    memory = _memory()
    for one in _registrable(objects):
        if issubclass(type(one), memory):
            name = one._name  # noqa: SLF001 - as it is registered: with a slash
            ours = one._flags & os.O_CREAT and getattr(one, "_track", True)  # noqa: SLF001
            if ours and name and os.path.exists(SHARED_MEMORY + name):  # noqa: PTH110 - it begins with the slash
                yield name, "shared_memory"
        else:
            name = getattr(getattr(one, "_semlock", None), "name", None)
            if name:
                yield name, "semaphore"


def _attribute(module: str, *names: str) -> Any:
    """Return an attribute of a module of multiprocessing; None where that isn't imported or has none."""
    found: Any = sys.modules.get(f"multiprocessing.{module}")
    for name in names:
        found = getattr(found, name, None)
    return found


class RandomStates:
    """The states of ``random``, NumPy and PyTorch at one moment."""

    def __init__(self) -> None:
        state = random.getstate()
        self._restore: List[Callable[[], object]] = [lambda: random.setstate(state)]
        numpy_random: Any = sys.modules.get("numpy.random")
        if numpy_random is not None:
            of_numpy = numpy_random.get_state()
            self._restore.append(lambda: numpy_random.set_state(of_numpy))
        torch: Any = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_rng_state"):
            of_torch = torch.get_rng_state()
            self._restore.append(lambda: torch.set_rng_state(of_torch))
            self._of_cuda(torch)

    def _of_cuda(self, torch: Any) -> None:
        """Those of the devices; where they are not in use yet, what ``torch.manual_seed`` has left for them."""
        cuda: Any = getattr(torch, "cuda", None)
        if cuda is None:
            return
        if cuda.is_initialized():
            states = cuda.get_rng_state_all()
            self._restore.append(lambda: cuda.set_rng_state_all(states))
            return
        seed = torch.initial_seed()
        self._restore.append(lambda: cuda.manual_seed_all(seed) if cuda.is_initialized() else None)

    def restore(self) -> None:
        """Set them again."""
        for each in self._restore:
            each()


def wait_for_first_rank(environment: Mapping[str, str]) -> None:
    """Return when MASTER_PORT is listened on, or has not been for a while. It takes a connection to see that."""
    rank, address, port = (environment.get(name, "") for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    if STORE_USER not in sys.modules or rank in {"", "0"} or not address or not port.isdigit():
        return
    wait_for_listener(address, port, FIRST_RANK_SECONDS)


def wait_for_listener(address: str, port: str, seconds: float) -> None:
    """Return when this port is listened on, or has not been for so long since the name was resolved."""
    try:
        found = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM)  # As who asks does next.
    except (OSError, ValueError, OverflowError):
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for family, kind, _, _, place in found:
            with socket.socket(family, kind) as one:
                one.settimeout(max(0.001, end - time.monotonic()))
                if not one.connect_ex(place):
                    return
        time.sleep(AGAIN_SECONDS)
