"""gangclient: what a training script may tell gangctl, and ask of it. One file, the standard library only.

Every call is optional, and outside of gangctl (no GANG_SOCKET) none of them does anything, so the same script runs
everywhere. A loop that is restartable in full::

    import gangclient

    gang = gangclient.connect()
    start, model = 0, new_model()
    if gang.restore:
        with gang.loading():                                # its time appears in the incident
            start, model = gang.restore.step, load(gang.restore.path)   # the same step on every rank
    gang.on_stop(lambda stop: abort_collectives())          # a peer has failed: don't wait for it
    for step in range(start + 1, STEPS + 1):
        train(model)
        gang.progress(step)                                 # never raises, never waits
        if step % 100 == 0:
            gang.checkpoint_begun(step, "ram", path)
            save(model, path)
            gang.checkpoint_completed(step, "ram", path)    # now a restart may go back to it

``progress`` is the heartbeat: a daemon thread sends the newest one and forgets the others. What ``loading`` (or
``checkpoint_loaded``) measures goes the same way: it never raises and never waits either. The calls about checkpoints
and restarts wait for the sidecar, five seconds at most, and raise :class:`GangError` if it can't be reached or refuses.
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
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, Iterator, NamedTuple, Optional, Tuple, Union

__all__ = ["Client", "Event", "GangError", "Restore", "connect"]

DEADLINE = 5.0
"""Seconds that a call about a checkpoint or a restart may take."""
PATIENCE = 2.0
"""Seconds that one request may take."""
INTERVAL = 0.25
"""Seconds between two messages about progress; the first step of an attempt doesn't wait."""
FLUSH = 0.2
"""Seconds that the last progress may delay the end of the process."""
_PAUSE = 0.1
_SOCKET_PATH = 107
"""Bytes that the path of a unix socket may have on Linux."""
_STEP = "Step"
_LONGEST = 1e9
"""Seconds: what the API takes."""
Path = Union[str, "os.PathLike[str]"]
_log = logging.getLogger("gangclient")


class GangError(RuntimeError):
    """A call that could not be made or was refused; ``reason`` is one CamelCase word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class Restore(NamedTuple):
    """The checkpoint that this attempt goes on from: the same step on every rank."""

    step: int
    path: str
    tier: str


class Event(NamedTuple):
    """``kind`` is ``stop`` (the worker of ``attempt`` is being stopped) or ``run`` (it runs)."""

    kind: str
    attempt: int
    reason: str = ""
    planned: bool = False
    """Nobody failed: save a last checkpoint. Otherwise a peer is gone: abort collectives."""
    seconds_left: Optional[float] = None
    """Until SIGKILL."""


class _Progress(NamedTuple):
    phase: str
    step: Any
    seconds: Any


class _Loaded(NamedTuple):
    seconds: Any


_Word = Union[_Progress, _Loaded]


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("gang", timeout=timeout)
        self._path = path

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


def connect(rank: Optional[int] = None) -> Client:
    """The client of this process, from its environment. It opens nothing yet, so forking afterwards is fine.

    Args:
        rank: this process' rank, where the launcher doesn't put it into RANK.
    """
    return Client(os.environ.get("GANG_SOCKET", ""), _integer("GANG_ATTEMPT"), rank)


class Client:
    """Speaks for one rank of one attempt. Any thread may call; so may a process forked from this one."""

    def __init__(self, path: str, attempt: int, rank: Optional[int]) -> None:
        self._path = path
        self._attempt = attempt
        self._rank = _integer("RANK") if rank is None else rank
        self._sender = _Sender(self._send)

    @property
    def restore(self) -> Optional[Restore]:
        """The restore point; None = begin from the beginning (or gangctl knows of no checkpoints)."""
        step = os.environ.get("GANG_RESTORE_STEP", "")
        if not step:
            return None
        return Restore(int(step), os.environ.get("GANG_RESTORE_PATH", ""), os.environ.get("GANG_RESTORE_TIER", ""))

    def attempt(self) -> Dict[str, Any]:
        """What the sidecar knows of the current attempt, as ``GET /v1/attempt`` answers; {} outside of gangctl.

        Raises:
            GangError: the sidecar can't be reached.
        """
        return self._insist("GET", "/v1/attempt", None, DEADLINE)

    def progress(self, step: int, phase: str = _STEP, seconds: Optional[float] = None) -> None:
        """Say how far this rank is. Never raises and never waits; what the sidecar is too slow for is dropped.

        Args:
            step: the step that was finished, or the one that the phase belongs to.
            phase: Startup, Step, Checkpoint or Evaluation: each has its own patience before it counts as a hang.
            seconds: how long the step took, without waiting for others where that can be told. That of the rank's first
                step in the attempt appears in the incident.
        """
        if self._path:
            self._sender.put(_Progress(phase, step, seconds))

    def checkpoint_loaded(self, seconds: float) -> None:
        """Say that this rank has just loaded the restore point. Never raises and never waits.

        It appears in the incident, and in its trace. Call it once in an attempt, when everything is loaded: a second
        time, or after the first step, changes nothing.

        Args:
            seconds: how long it took.
        """
        if self._path:
            self._sender.put(_Loaded(seconds))

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Measure what is done within, and say it with :meth:`checkpoint_loaded`; nothing if it raises."""
        began = time.monotonic()
        yield
        self.checkpoint_loaded(time.monotonic() - began)

    def checkpoint_begun(self, step: int, tier: str, path: Path = "", deadline: float = DEADLINE) -> None:
        """This rank begins to write: an older checkpoint of this step doesn't exist any more.

        Raises:
            GangError: it could not be said within ``deadline`` seconds, or was refused. Then don't write over it.
        """
        self._checkpoint("Begun", step, tier, path, deadline)

    def checkpoint_completed(self, step: int, tier: str, path: Path = "", deadline: float = DEADLINE) -> None:
        """This rank's part is written and can be loaded from ``path``.

        Raises:
            GangError: it could not be registered within ``deadline`` seconds, or was refused: no restart will use it.
        """
        self._checkpoint("Completed", step, tier, path, deadline)

    def checkpoint_dropped(self, step: int, tier: str, path: Path = "", deadline: float = DEADLINE) -> None:
        """This rank deletes the checkpoint; say it before.

        Raises:
            GangError: it could not be said within ``deadline`` seconds, or was refused.
        """
        self._checkpoint("Dropped", step, tier, path, deadline)

    def request_restart(self, reason: str, level: str = "Process", *, exclude_this_node: bool = False) -> None:
        """Ask for a restart of the whole gang. The controller decides; this worker will be stopped if it agrees.

        Args:
            reason: a sentence for the incident.
            level: the least that is thrown away: Process, Pod or Gang.
            exclude_this_node: replace this member's pod on another node.

        Raises:
            GangError: it could not be said, or was refused.
        """
        body = {"reason": reason, "level": level, "excludeThisNode": exclude_this_node, **self._who()}
        self._insist("POST", "/v1/restart", body, DEADLINE)

    def events(self) -> Iterator[Event]:
        """What happens to this member's worker, for ever: first what holds now. Ends at once outside of gangctl."""
        while self._path:
            try:
                yield from self._stream()
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                _log.debug("the stream of events broke: %s", error)
            time.sleep(_PAUSE)  # The sidecar restarts: it takes as long as it takes.

    def on_stop(self, callback: Callable[[Event], None]) -> None:
        """Call ``callback`` once in a daemon thread when this attempt is being stopped. It doesn't run on a signal."""
        if self._path:
            threading.Thread(target=self._await_stop, args=(callback,), name="gangclient-stop", daemon=True).start()

    def _await_stop(self, callback: Callable[[Event], None]) -> None:
        for event in self.events():
            if event.kind == "stop" and event.attempt == self._attempt:
                callback(event)
                return

    def _stream(self) -> Iterator[Event]:
        connection = _Connection(self._path, None)
        try:
            connection.request("GET", "/v1/events")
            answer = connection.getresponse()
            kind = ""
            for raw in iter(answer.readline, b""):
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield _event(kind, json.loads(value))
        finally:
            connection.close()

    def _who(self) -> Dict[str, int]:
        return {"attempt": self._attempt, "rank": self._rank}

    def _checkpoint(self, state: str, step: int, tier: str, path: Path, deadline: float) -> None:
        # os.fspath and int take what frameworks have: Path objects, numpy's integers.
        body = {"state": state, "step": int(step), "tier": tier, "path": os.fspath(path), **self._who()}
        self._insist("POST", "/v1/checkpoints", body, deadline)

    def _insist(self, method: str, path: str, body: Optional[Dict[str, Any]], deadline: float) -> Dict[str, Any]:
        """Call until the sidecar answers with more than "not now", or time is over."""
        if not self._path:
            return {}
        end = time.monotonic() + deadline
        while True:
            left = end - time.monotonic()
            try:
                status, answer = _call(_Connection(self._path, max(0.01, min(left, PATIENCE))), method, path, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason, message = "SidecarAway", f"the sidecar doesn't answer at {self._path}: {error or type(error)}"
            else:
                if status < http.client.BAD_REQUEST:
                    return answer
                problem = answer.get("error", {})
                reason, message = problem.get("reason", "Refused"), problem.get("message", f"status {status}")
                if status != http.client.SERVICE_UNAVAILABLE:
                    raise GangError(reason, message)
            left = end - time.monotonic()
            if left <= 0:
                raise GangError(reason, f"{message} (given up after {deadline:g} s)")
            time.sleep(min(_PAUSE, left))

    def _send(self, word: _Word) -> str:
        """Say it; gives what is wrong with it although it was taken."""
        if isinstance(word, _Loaded):
            self._post("/v1/checkpoints/loaded", {"seconds": _duration(word.seconds), **self._who()})
            return ""
        body, wrong = {"phase": word.phase, "step": int(word.step), **self._who()}, ""
        if word.seconds is not None:
            try:
                body["seconds"] = _duration(word.seconds)
            except Exception as error:  # noqa: BLE001 - it may be any object; the step is the heartbeat, and counts
                wrong = f"the step is reported, its duration is not: {error}"
        self._post("/v1/progress", body)
        return wrong

    def _post(self, path: str, body: Dict[str, Any]) -> None:
        status, answer = _call(_Connection(self._path, PATIENCE), "POST", path, body)
        if "warning" in answer:
            _log.warning("%s: %s", answer["warning"], answer.get("message", ""))
        elif status >= http.client.BAD_REQUEST:
            raise ValueError(answer)


class _Sender:
    """A daemon thread that sends what was loaded, the first step and, after that, whatever is the newest.

    The caller takes no lock: setting an attribute, appending to a deque and SimpleQueue.put are safe at any moment, in
    a signal handler too.
    """

    def __init__(self, send: Callable[[_Word], str]) -> None:
        self._send = send
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._loaded: Optional[_Loaded] = None
        self._first: Optional[_Progress] = None
        self._newest: Deque[_Progress] = deque(maxlen=1)
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._complaint = ""

    def put(self, word: _Word) -> None:
        """Leave it for the thread."""
        if self._pid != os.getpid():
            self._begin()  # In a forked process the thread isn't there, and its locks may be held for ever.
        if isinstance(word, _Loaded):
            self._loaded = self._loaded or word
        else:
            if self._first is None and word.phase == _STEP:
                self._first = word
            self._newest.append(word)
        if self._thread is None:
            self._start()
        if self._wake.empty():
            self._wake.put(None)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="gangclient-progress", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # The interpreter ends, or has no room for a thread.
            _log.debug("no progress is sent: %s", error)
            return
        atexit.register(self._flush)

    def _run(self) -> None:
        loaded, first = None, None
        while True:
            if not self._closing.is_set():
                self._wake.get()
            if loaded is None and self._loaded is not None:
                loaded = self._loaded
                self._try(loaded, "the loading of the checkpoint is not reported")
            if first is None and self._first is not None:
                first = self._first
                self._try(first, "progress is not reported")
            newest = self._newest.pop() if self._newest else None
            if newest is not None and newest is not first:
                self._try(newest, "progress is not reported")
            if self._closing.is_set() and not self._newest:
                return  # What came while the last one was being sent has been sent as well.
            if first is not None:
                self._closing.wait(INTERVAL)

    def _try(self, word: _Word, failure: str) -> None:
        try:
            complaint = self._send(word)
        except Exception as error:  # noqa: BLE001 - a step may be any object of a framework, and nothing may escape
            complaint = f"{failure}: {type(error).__name__}: {error}"
        if complaint and complaint != self._complaint:
            _log.warning("%s", complaint)
        self._complaint = complaint

    def _flush(self) -> None:
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._closing.set()
            self._wake.put(None)
            thread.join(FLUSH)


def _call(
    connection: _Connection, method: str, path: str, body: Optional[Dict[str, Any]]
) -> Tuple[int, Dict[str, Any]]:
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError(f"{method} {path} was answered with no object")  # noqa: TRY004 - it is what was received
    return response.status, answer


def _event(kind: str, data: Dict[str, Any]) -> Event:
    left = data.get("millisecondsLeft")
    seconds = None if left is None else left / 1000
    return Event(kind, data["attempt"], data.get("reason", ""), data.get("planned", False), seconds)


def _duration(value: Any) -> float:
    seconds = float(value)  # numpy's and torch's scalars as well
    if not 0 <= seconds <= _LONGEST:  # NaN isn't either
        raise ValueError(f"{seconds} is no duration in seconds")
    return seconds


def _integer(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else 0
