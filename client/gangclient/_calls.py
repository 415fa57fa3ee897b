"""Calls to the sidecar, HTTP and JSON on a unix socket: made at once, or by a daemon thread.

A training loop never waits for progress and loading: a thread sends them. A call about checkpoints and restarts waits
for the answer. If none comes in time, the call is kept, and another thread repeats it until it is answered. It must
never end a training that could go on, and never overtake an older call that is still kept.

The end of the process waits for a moment for what is not sent yet, but only in the process that started the thread.
"""

from __future__ import annotations

import atexit
import http.client
import json
import logging
import os
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, NamedTuple, Optional, Tuple, Union

PATIENCE = 2.0
"""Seconds that one request may take."""
PAUSE = 0.1
"""Seconds between two tries."""
FLUSH = 0.2
"""Seconds that what is not sent yet may delay the end of the process."""
CALL_ERRORS = (OSError, http.client.HTTPException, ValueError, KeyError)
"""No answer, or one that makes no sense."""
_SOCKET_PATH = 107
"""Bytes that the path of a unix socket may have on Linux."""
Body = Dict[str, Any]
INTERVAL = 0.25
"""Seconds between two messages about progress; the first step of an attempt doesn't wait."""
STEP = "Step"
_LONGEST = 1e9
"""Seconds: the largest duration that the API accepts."""
_log = logging.getLogger("gangclient")
MAX_CALLS = 1000
"""Calls that are kept; beyond that, the oldest is forgotten."""


class GangError(RuntimeError):
    """A call was refused; ``reason`` is one CamelCase word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class AwayError(GangError):
    """There was no answer in time: the sidecar is away or frozen, or has no supervisor."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("gang", timeout=timeout)
        self._path = path

    def hang_up(self) -> None:
        """Close it, also where a process that was forked meanwhile has it open."""
        self.shut_down()
        self.close()

    def shut_down(self) -> None:
        """End it; any thread may, and the one that reads finds its end."""
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def connect(self) -> None:
        """Connect; a path that is too long for a socket is reached through its open folder."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        if len(os.fsencode(self._path)) <= _SOCKET_PATH:
            self.sock.connect(self._path)
            return
        folder, name = os.path.split(self._path)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{opened}/{name}")
        finally:
            os.close(opened)


def call(socket_path: str, timeout: float, method: str, path: str, body: Optional[Body]) -> Tuple[int, Body]:
    """Make one request; return the status and the answer, or raise one of :data:`CALL_ERRORS`."""
    connection = UnixConnection(socket_path, timeout)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError(f"the answer to {method} {path} isn't an object")  # noqa: TRY004 - it is what was received
    return response.status, answer


def ask(socket_path: str, timeout: float, method: str, path: str, body: Optional[Body]) -> Body:
    """Make one request; return the final answer. AwayError: none within ``timeout`` seconds. GangError: a refusal."""
    try:
        status, answer = call(socket_path, timeout, method, path, body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        found = f"the sidecar doesn't answer at {socket_path}: {error or type(error).__name__}"
        raise AwayError("SidecarAway", found) from None
    if status < http.client.BAD_REQUEST:
        return answer
    problem = answer.get("error", {})
    kind = AwayError if status == http.client.SERVICE_UNAVAILABLE else GangError
    raise kind(problem.get("reason", "Refused"), problem.get("message", f"status {status}"))


def ask_until(socket_path: str, deadline: float, method: str, path: str, body: Optional[Body]) -> Body:
    """As :func:`ask`, repeated until the sidecar's answer is final, for at most ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while True:
        try:
            return ask(socket_path, max(0.01, min(end - time.monotonic(), PATIENCE)), method, path, body)
        except AwayError:
            left = end - time.monotonic()
            if left <= 0:
                raise
        time.sleep(min(PAUSE, left))


class Background:
    """Work that a daemon thread does, which the first call starts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()

    def _begin(self) -> None:
        """Begin without a thread; also in a forked process, where the parent's isn't there."""
        self._pid = os.getpid()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"gangclient-{self._name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # The interpreter ends, or has no room for a thread.
            self._thread = None  # The next call tries again.
            _log.debug("nothing is sent in the background: %s", error)
            return
        atexit.register(self._flush)

    def _run(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let the thread end. It is not waited for."""
        self._closing.set()
        self._wake.put(None)
        atexit.unregister(self._flush)

    def _flush(self) -> None:
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._closing.set()
            self._wake.put(None)
            thread.join(self._flush_seconds)

    @property
    def _flush_seconds(self) -> float:
        """The time that the end of the process may wait for it."""
        return FLUSH


class ProgressCall(NamedTuple):
    """The rank's progress; the values are the caller's, of any type."""

    phase: str
    step: Any
    seconds: Any


class ReachedCall(NamedTuple):
    """The rank has joined the process group, or has loaded the restore point."""

    what: str
    path: str
    seconds: Any


QueuedCall = Union[ProgressCall, ReachedCall]


class Sender(Background):
    """A daemon thread that sends joining, loading, the first step and, after that, the newest progress only.

    The caller takes no lock: setting an attribute, appending to a deque and SimpleQueue.put are safe at any moment, in
    a signal handler too.
    """

    def __init__(self, send: Callable[[QueuedCall], str]) -> None:
        self._send = send
        super().__init__("progress")

    def _begin(self) -> None:
        super()._begin()
        self._reached: Dict[str, ReachedCall] = {}
        self._first: Optional[ProgressCall] = None
        self._newest: Deque[ProgressCall] = deque(maxlen=1)
        self._complaint = ""

    def put(self, message: QueuedCall) -> None:
        """Leave it for the thread."""
        if self._pid != os.getpid():
            self._begin()  # In a forked process the thread isn't there, and its locks may never be released.
        if isinstance(message, ReachedCall):
            self._reached.setdefault(message.path, message)
        else:
            if self._first is None and message.phase == STEP:
                self._first = message
            self._newest.append(message)
        if self._thread is None:
            self._start()
        if self._wake.empty():
            self._wake.put(None)

    def _run(self) -> None:
        sent, first = 0, None
        while True:
            if not self._closing.is_set():
                self._wake.get()
            for reached in list(self._reached.values())[sent:]:
                sent += 1
                self._try(reached, f"{reached.what} is not reported")
            if first is None and self._first is not None:
                first = self._first
                self._try(first, "progress is not reported")
            newest = self._newest.pop() if self._newest else None
            if newest is not None and newest is not first:
                self._try(newest, "progress is not reported")
            if self._closing.is_set() and not self._newest:
                return  # What arrived while the last one was being sent has been sent too.
            if first is not None:
                self._closing.wait(INTERVAL)

    def _try(self, message: QueuedCall, failure: str) -> None:
        try:
            complaint = self._send(message)
        except Exception as error:  # noqa: BLE001 - a step may be any object of a framework, and nothing may escape
            complaint = f"{failure}: {type(error).__name__}: {error}"
        if complaint and complaint != self._complaint:
            _log.warning("%s", complaint)
        self._complaint = complaint


def checked_seconds(value: Any) -> float:
    """Return the seconds, or raise ValueError or TypeError if the API doesn't accept them."""
    seconds = float(value)  # numpy's and torch's scalars as well
    if not 0 <= seconds <= _LONGEST:  # NaN isn't either
        raise ValueError(f"{seconds} isn't a duration in seconds")
    return seconds


class _Kept:
    """One call; equal only to itself."""

    def __init__(self, path: str, body: Body) -> None:
        self.path = path
        self.body = body


class Backlog(Background):
    """Makes calls in order, and keeps those that the sidecar doesn't answer.

    The caller takes no lock, as for :class:`gangclient._sender.Sender`: each use of the deque is one atomic step. A
    call leaves it once it is answered, so nothing overtakes the one that is being repeated.
    """

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        super().__init__("backlog")

    def _begin(self) -> None:
        super()._begin()
        self._kept: Deque[_Kept] = deque()

    def tell(self, path: str, body: Body, deadline: float) -> Optional[Body]:
        """Post it; return the answer, or None if the sidecar doesn't answer by now and the call is kept.

        It waits for at most ``deadline`` seconds, and not at all while an older call is kept.
        GangError: it was refused.
        """
        if self._pid != os.getpid():
            self._begin()  # In a forked process the thread isn't there; what is kept is its parent's to tell.
        if self._kept:
            self._keep(path, body)
            return None
        try:
            return ask_until(self._socket_path, deadline, "POST", path, body)
        except AwayError as away:
            _log.warning("%s; training goes on, and the call is repeated until the sidecar answers", away)
        self._keep(path, body)
        return None

    def _keep(self, path: str, body: Body) -> None:
        self._kept.append(_Kept(path, body))
        if len(self._kept) > MAX_CALLS:
            self._kept.popleft()
            _log.warning(
                "the sidecar is away and %d calls wait for it: the oldest call that was kept is forgotten", MAX_CALLS
            )
        if self._thread is None:
            self._start()
        self._wake.put(None)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.get()
            while self._kept and self._repeat(self._kept[0]):
                pass

    def _repeat(self, kept: _Kept) -> bool:
        """Make the call once more; return False if the process ends, so there is no time for more."""
        try:
            ask(self._socket_path, PATIENCE, "POST", kept.path, kept.body)
        except AwayError:
            return not self._closing.wait(PAUSE)
        except Exception as error:  # noqa: BLE001 - one call must not keep the others from being repeated
            log_refusal(error)
        try:
            self._kept.remove(kept)
        except ValueError:
            _log.debug("it was forgotten meanwhile")
        return True

    @property
    def _flush_seconds(self) -> float:
        return super()._flush_seconds if self._kept else 0


def log_refusal(error: Exception) -> None:
    """A refused call changes nothing; its caller trains on."""
    problem = str(error) if isinstance(error, GangError) else f"{type(error).__name__}: {error}"
    _log.error("%s; the call changes nothing, and training goes on", problem)
