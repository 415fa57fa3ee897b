"""The client: one rank of one attempt.

Its process offers its Python stacks for the incident of a gang that hangs: it writes them itself, into memory, when the
supervisor asks for them with a signal. The supervisor sends that only to a process that catches it and has this file,
so a process that offers nothing is never disturbed. A signal that the script uses itself is left to it.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import threading
import time
from contextlib import closing, contextmanager
from typing import Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple, Union

from gangclient._calls import (
    CALL_ERRORS,
    PATIENCE,
    PAUSE,
    STEP,
    Backlog,
    Body,
    GangError,
    ProgressCall,
    QueuedCall,
    ReachedCall,
    Sender,
    UnixConnection,
    ask,
    ask_until,
    checked_seconds,
    log_refusal,
)

DEADLINE = 5.0
"""Seconds that a call about a checkpoint or a restart waits for the sidecar."""
Path = Union[str, "os.PathLike[str]"]
_log = logging.getLogger("gangclient")
adopt: Optional[Callable[[Client], None]] = None
"""Takes each client that is made within :func:`gangclient.run`, if this process survives restarts."""
SIGNAL = 59
"""A real-time signal; the supervisor knows it, too."""
FILE = "gang-stacks"
_offered = False


class Restore(NamedTuple):
    """The checkpoint that this attempt starts from: the same step on every rank."""

    step: int
    path: str
    tier: str


class Event(NamedTuple):
    """``kind`` is ``stop`` (the worker of ``attempt`` is being stopped) or ``run`` (it runs)."""

    kind: str
    attempt: int
    reason: str = ""
    planned: bool = False
    """No fault caused it: save a last checkpoint. Otherwise a peer is gone: abort collectives."""
    seconds_left: Optional[float] = None
    """Until SIGKILL."""


def connect(rank: Optional[int] = None) -> Client:
    """The client of this process, from its environment. It opens no connection, so the process may fork afterwards.

    ``rank``: where the launcher doesn't set RANK. If the gang hangs, its incident gets the stacks of this process.
    """
    offer_stacks()
    return Client(os.environ.get("GANG_SOCKET", ""), _integer("GANG_ATTEMPT"), rank)


class Client:
    """The calls of one rank in one attempt. Any thread may call, and so may a process forked from this one.

    Calls about checkpoints and restarts return whether the sidecar has taken them. False: it is away or frozen, and
    gets the call as soon as it answers; or it has refused, and the log says why. Outside of gangctl they return True.
    """

    def __init__(self, path: str, attempt: int, rank: Optional[int]) -> None:
        self._path = path
        self._attempt = attempt
        self._rank = _integer("RANK") if rank is None else rank
        self._sender = Sender(self._send)
        self._backlog = Backlog(path)
        self._saved = False  # A checkpoint of this attempt was taken.
        self._closed = False
        self._streams: List[Tuple[int, UnixConnection]] = []
        """Those that are open, and the process that has opened them: :meth:`close` ends them there."""
        self.on_close: List[Callable[[], object]] = []
        self.restart_reason = ""
        """Why the attempt before was stopped, where this same process ran it (:func:`gangclient.run`)."""
        self.interruption: Optional[Callable[[], None]] = None
        """Raises in ``progress`` if this attempt is being stopped; for :func:`gangclient.run`."""
        self.guard: Optional[Callable[[], None]] = None
        """Raises if a fault stops this attempt, before anything ends its collectives; for state that is kept."""
        if adopt is not None:
            adopt(self)

    @property
    def restore(self) -> Optional[Restore]:
        """The restore point; None = start from the beginning (or gangctl knows of no checkpoints)."""
        if not (step := os.environ.get("GANG_RESTORE_STEP", "")):
            return None
        return Restore(int(step), os.environ.get("GANG_RESTORE_PATH", ""), os.environ.get("GANG_RESTORE_TIER", ""))

    @property
    def number(self) -> int:
        """The number of the attempt; 0 outside of gangctl."""
        return self._attempt

    def attempt(self, deadline: float = DEADLINE) -> Body:
        """The current attempt, as ``GET /v1/attempt`` describes it. {} outside of gangctl, and if there is no answer.

        What training needs is in the environment, too: take it from there.
        """
        try:
            return ask_until(self._path, deadline, "GET", "/v1/attempt", None) if self._path else {}
        except GangError as error:
            _log.warning("the current attempt is unknown: %s", error)
            return {}

    def progress(self, step: int, phase: str = STEP, seconds: Optional[float] = None) -> None:
        """Report how far this rank is. Never raises and never waits: what the sidecar is too slow for is dropped.

        Within :func:`gangclient.run` it raises :class:`gangclient.Restart` when this attempt is being stopped.

        Args:
            step: the step that is finished, or the one that the phase belongs to.
            phase: Startup, Step, Checkpoint or Evaluation. Each has its own time limit before it counts as a hang.
            seconds: how long the step took, without waiting for other ranks where that can be measured. The duration
                of the first step appears in the incident; from 50 steps on, ranks are compared to find slow ones.
        """
        if self._path:
            self._sender.put(ProgressCall(phase, step, seconds))
        if self.interruption is not None:
            self.interruption()

    def checkpoint_loaded(self, seconds: float) -> None:
        """Report that this rank has just loaded the restore point. Never raises and never waits.

        It appears in the incident and in its trace. Call it once in an attempt, when everything is loaded: a second
        call, or one after the first step, changes nothing.

        Args:
            seconds: how long it took.
        """
        if self._path:
            self._sender.put(ReachedCall("the loading of the checkpoint", "/v1/checkpoints/loaded", seconds))

    def joined(self, seconds: Optional[float] = None) -> None:
        """Report that this rank has just joined the process group, as :meth:`checkpoint_loaded` does the restore point.

        Args:
            seconds: how long it took; None if that isn't known.
        """
        if self._path:
            self._sender.put(ReachedCall("joining the process group", "/v1/joined", seconds))

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Measure the block and report it with :meth:`joined`, unless the block raises."""
        began = time.monotonic()
        yield
        self.joined(time.monotonic() - began)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Measure the block and report it with :meth:`checkpoint_loaded`, unless the block raises."""
        began = time.monotonic()
        yield
        self.checkpoint_loaded(time.monotonic() - began)

    def checkpoint_begun(self, step: int, tier: str, path: Path = "", deadline: float = DEADLINE) -> bool:
        """Register that this rank begins to write: an older checkpoint of this step no longer exists.

        Returns False if the sidecar has not taken it. Where you would overwrite a checkpoint, write to another path
        then: a restart may still choose the old one. Raises GangError as :meth:`checkpoint_completed` does.
        """
        return self.register("Begun", step, tier, path, deadline)

    def checkpoint_completed(self, step: int, tier: str, path: Path = "", deadline: float = DEADLINE) -> bool:
        """Register that this rank's part is written, and can be loaded from ``path`` (in a Shared tier one for all).

        Returns False if the sidecar has not taken it. Don't delete the checkpoint before it then.

        Raises:
            GangError: the GangJob has no such tier, and there is nothing to lose yet: no restore point, and no
                checkpoint of this process that was taken. Later it is logged, and training goes on.
        """
        return self.register("Completed", step, tier, path, deadline)

    def checkpoint_dropped(self, step: int, tier: str, path: Path = "", deadline: float = DEADLINE) -> bool:
        """Register that this rank is about to delete the checkpoint.

        Returns False if the sidecar has not taken it. Delete it later then: a restart may still choose it. Raises
        GangError as :meth:`checkpoint_completed` does.
        """
        return self.register("Dropped", step, tier, path, deadline)

    def checkpoint_verified(self, step: int) -> bool:
        """Report that the checkpoint of this step is right, for all ranks and in all tiers. One rank is enough.

        With ``trust: Verified`` in ``spec.checkpoint.restore`` only such steps are restored. Returns False if the
        sidecar has not taken it.
        """
        return self._ask("/v1/checkpoints/verified", {"step": int(step)})

    def request_restart(self, reason: str, level: str = "Process", *, exclude_this_node: bool = False) -> bool:
        """Ask for a restart of the whole gang. The controller decides; this worker will be stopped if it agrees.

        Returns False if the sidecar has not taken it.

        Args:
            reason: a sentence; it appears in the incident.
            level: how much is thrown away at least: Process, Pod or Gang.
            exclude_this_node: replace this member's pod on another node.
        """
        return self._ask("/v1/restart", {"reason": reason, "level": level, "excludeThisNode": exclude_this_node})

    def corrupt(self, *, since_step: int, why: str, rank: Optional[int] = None) -> bool:
        """Report that a rank computes wrongly, without an error (silent corruption).

        The gang restarts: the rank's pod is replaced on another node, and no checkpoint of ``since_step`` or later is
        restored. Returns False if the sidecar has not taken it.

        Args:
            since_step: the first step whose checkpoint may be wrong.
            why: a sentence; it appears in the incident.
            rank: the rank at fault, if it isn't this one.
        """
        body: Body = {"sinceStep": int(since_step), "reason": why}
        return self._ask("/v1/corruption", body if rank is None else {**body, "rankAtFault": int(rank)})

    def events(self) -> Iterator[Event]:
        """The events of this member's worker, without end: first the current state. Empty outside of gangctl."""
        while self._path and not self._closed:
            try:
                yield from self._stream()
            except CALL_ERRORS as error:
                _log.debug("the stream of events broke: %s", error)
            time.sleep(PAUSE)  # The sidecar is restarting.

    def on_stop(self, callback: Callable[[Event], None]) -> None:
        """Call ``callback`` once, in a daemon thread, when this attempt is being stopped; never in a signal handler.

        SIGTERM comes when it has returned, or after half a second: enough to abort collectives or to raise a flag. A
        longer one goes on until the process ends.
        """
        if self._path:
            thread = threading.Thread(target=self._await_stop, args=(callback,), name="gangclient-stop", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The interpreter ends, or has no room for a thread.
                _log.warning("a stop will not be announced: %s", error)

    def close(self) -> None:
        """End the threads of this client: its attempt is over. What could not be sent yet is dropped.

        No callback of :meth:`on_stop` is called from now on; one that has begun goes on.
        """
        self._closed = True
        for end in self.on_close:
            end()
        self._sender.close()
        self._backlog.close()
        for pid, connection in list(self._streams):
            if pid == os.getpid():
                connection.shut_down()

    def _await_stop(self, callback: Callable[[Event], None]) -> None:
        while not self._closed:
            with closing(self._stream("/v1/stop")) as events:  # It is open while the callback acts.
                stop = self._own_stop(events)
                if stop is not None:
                    if not self._closed:
                        callback(stop)
                    return
            time.sleep(PAUSE)  # The sidecar is restarting.

    def _own_stop(self, events: Iterator[Event]) -> Optional[Event]:
        try:
            return next((one for one in events if one.attempt == self._attempt), None)
        except CALL_ERRORS as error:
            _log.debug("the stream of the stop broke: %s", error)
            return None

    def _stream(self, path: str = "/v1/events") -> Generator[Event, None, None]:
        connection = UnixConnection(self._path, None)
        opened = os.getpid(), connection
        self._streams.append(opened)
        try:
            connection.request("GET", path)
            if self._closed:
                return  # It may have been connected too late to be shut down.
            answer = connection.getresponse()
            kind = ""
            for raw in iter(answer.readline, b""):
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield _event(kind, json.loads(value))
        finally:
            self._streams.remove(opened)
            connection.hang_up()

    def _ask(self, path: str, body: Body) -> bool:
        """Pass it on to the controller; returns whether the sidecar has taken it."""
        try:
            return not self._path or self._backlog.tell(path, {**body, **self._who()}, DEADLINE) is not None
        except GangError as refusal:
            log_refusal(refusal)
            return False

    def _who(self) -> Dict[str, int]:
        return {"attempt": self._attempt, "rank": self._rank}

    def register(
        self, state: str, step: int, tier: str, path: Path, deadline: float = DEADLINE, owner: Optional[int] = None
    ) -> bool:
        """Register what a rank did with a checkpoint; ``owner``: the rank whose part a copy is."""
        # os.fspath and int take what frameworks have: Path objects, numpy's integers.
        body = {"state": state, "step": int(step), "tier": tier, "path": os.fspath(path), **self._who()}
        if owner is not None:
            body["owner"] = owner
        if not self._path:
            return True
        try:
            answer = self._backlog.tell("/v1/checkpoints", body, deadline)
        except GangError as refusal:
            if refusal.reason == "TierUnknown" and not self._saved and self.restore is None:
                raise
            log_refusal(refusal)
            return False
        if answer is None:
            return False
        self._saved = self._saved or state == "Completed"
        if answer.get("ignored") == "DirectoryTier":
            _log.info("checkpoint %d: %s", body["step"], answer.get("message", ""))
        return True

    def _send(self, message: QueuedCall) -> str:
        """Send it; returns what is wrong with it although the sidecar took it."""
        if isinstance(message, ReachedCall):
            took = {} if message.seconds is None else {"seconds": checked_seconds(message.seconds)}
            self._post(message.path, {**took, **self._who()})
            return ""
        body, wrong = {"phase": message.phase, "step": int(message.step), **self._who()}, ""
        if message.seconds is not None:
            try:
                body["seconds"] = checked_seconds(message.seconds)
            except Exception as error:  # noqa: BLE001 - it may be any object; the step is the heartbeat, and counts
                wrong = f"the step is reported, its duration is not: {error}"
        self._post("/v1/progress", {"pid": os.getpid(), **body})
        return wrong

    def _post(self, path: str, body: Body) -> None:
        answer = ask(self._path, PATIENCE, "POST", path, body)
        if "warning" in answer:
            _log.warning("%s: %s", answer["warning"], answer.get("message", ""))


def _event(kind: str, data: Body) -> Event:
    seconds = None if (left := data.get("millisecondsLeft")) is None else left / 1000
    return Event(kind, data["attempt"], data.get("reason", ""), data.get("planned", False), seconds)


def _integer(name: str) -> int:
    return int(text) if (text := os.environ.get(name, "")).isdigit() else 0


def offer_stacks() -> None:
    """Offer them, once in a process and those forked from it. Outside of gangctl, and where it can't be, do nothing."""
    global _offered  # noqa: PLW0603 - it is one process
    if _offered or not os.environ.get("GANG_SOCKET") or not hasattr(os, "memfd_create"):
        return
    _offered = True
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    try:
        faulthandler.register(SIGNAL, file=os.memfd_create(FILE), all_threads=True)
    except (OSError, RuntimeError, ValueError):  # The kernel or the interpreter has none of it.
        return
