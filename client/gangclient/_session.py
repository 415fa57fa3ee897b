"""``gangclient.run``: a process that survives the restarts of its gang.

The rule: this process obeys. It stops when the supervisor tells it to, says that it has parked once ``train`` has been
left, its hooks have run and none of its threads is left, and calls ``train`` again when the supervisor tells it to. If
it isn't there in time, it is killed like any other, and the log has the place where it was.

Three threads: the main thread runs ``train`` and the hooks; the channel's thread hears of a stop and starts a third one
for the abort callbacks. What they share are single attributes. ``train`` is interrupted when the callbacks have
returned, never before: it could wait for what they end.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from functools import partial
from types import FrameType
from typing import Any, Callable, Dict, Iterable, List, Optional, Protocol, Set, Tuple, TypeVar, Union

from gangclient import _client
from gangclient._client import Client, Event, connect
from gangclient._parking import Channel, Helpers, RandomStates, find_channel, wait_for_first_rank

Result = TypeVar("Result")
Train = Callable[[Client], Result]
Open = Callable[[Callable[[Event], None], Callable[[], None]], Channel]
"""Opens the channel; what it calls on a stop, and when the process is late."""

INTERRUPT = signal.SIGURG
"""Ignored where it isn't caught, so one that comes late does no harm."""
_INTERRUPT_AGAIN = 0.1
"""Seconds between two signals: Python runs a handler after a call that waits, if the signal came just before it."""
_NAME_THREADS = 1.0
"""Seconds after which the threads are named that keep a process from parking."""
_OURS = __file__.rpartition(os.sep)[0]
_log = logging.getLogger("gangclient")
Callback = Union[Callable[[Event], object], Iterable[Callable[[Event], object]]]
Hook = Union[Callable[[], object], Iterable[Callable[[], object]]]


class Kept(Protocol):
    """State that survives a stop."""

    def offer(self, gang: Client) -> None:
        """Register the step that it has, as its attempt is left."""


AT_PROGRESS = "at_progress"
AT_ONCE = "at_once"
_inside: Optional[int] = None
"""The process that is in ``run``."""


class Restart(BaseException):
    """The attempt is being stopped. Let it pass: ``run`` takes it.

    It is no ``Exception``, so that ``except Exception`` lets it pass. ``stop.planned`` says whether no fault caused it:
    then there is time to save a last checkpoint, ``stop.seconds_left`` as the stop began.
    """

    def __init__(self, stop: Event) -> None:
        super().__init__(stop.reason)
        self.stop = stop


class Session:
    """Calls ``train`` once for each attempt, until it returns."""

    def __init__(
        self,
        abort: List[Callable[[Event], object]],
        finalize: List[Callable[[], object]],
        echo_seconds: float,
        *,
        at_once: bool,
        offer: Optional[Callable[[Client], object]] = None,
    ) -> None:
        """As for ``gangclient.run``."""
        self._abort = abort
        self._finalize = finalize
        self._echo_seconds = echo_seconds
        self._at_once = at_once
        self._offer = offer
        self._attempt = 0
        self._clients: List[Client] = []  # Those of this attempt: that of ``train``, and those of frameworks' adapters.
        self._helpers = Helpers()
        self._changed = threading.Condition()
        self._stop: Optional[Event] = None  # The newest stop.
        self._fault: Optional[Event] = None  # The newest that a fault caused: its callbacks cut collectives short.
        self._interrupting: Optional[Event] = None  # The newest whose callbacks have returned.
        self._aborting: Optional[threading.Thread] = None
        self._raised_at = ""  # Where the interruption of this attempt was raised.
        self._entered = False  # ``train`` was called in this attempt.
        self._left = threading.Event()  # ``train`` is not running.

    def run(self, train: Train[Result], open_channel: Open) -> Result:
        """Return what ``train`` returns in the attempt that isn't stopped."""
        states, threads = RandomStates(), set(threading.enumerate())
        gc.freeze()  # What the script has imported lives on: the collection of each stop has no need to look at it.
        before = signal.signal(INTERRUPT, self._on_interrupt) if self._at_once else None
        channel = open_channel(self._on_stop, self._on_late)
        reason, _client.adopt = "", self._adopt
        try:
            while True:
                gang = connect()
                gang.restart_reason = reason
                self._attempt, self._raised_at, self._entered = gang.number, "", False
                results = self._results(train, gang)
                if results:
                    return results[0]
                reason = self._leave(gang, threads)
                following = channel.park(self._attempt)
                for name in following.without:
                    os.environ.pop(name, None)
                os.environ.update(following.environment)  # What the script has set itself stays.
                self._helpers.go_on()
                states.restore()
                wait_for_first_rank(os.environ)
        finally:
            _client.adopt = None
            channel.close()
            if before is not None:
                signal.signal(INTERRUPT, before)

    def _adopt(self, client: Client) -> None:
        client.interruption, client.guard = self._interrupt, self._guard
        self._clients.append(client)

    def _results(self, train: Train[Result], gang: Client) -> Tuple[Result, ...]:
        """Return what ``train`` returns; nothing if the attempt is being stopped."""
        try:
            return (self._call(train, gang),)
        except Restart as restart:
            if self._stop_within(0) is None:
                raise  # It is not ours.
            _forget(restart)
        except Exception as error:
            summary = "".join(traceback.format_exception_only(type(error), error)).strip()
            if self._stop_within(self._echo_seconds) is None:
                raise
            frames = traceback.extract_tb(error.__traceback__)
            place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
            _log.warning("train was left by %s, as the attempt is being stopped (%s)", summary, place)
            _forget(error)
        return ()

    def _call(self, train: Train[Result], gang: Client) -> Result:
        """Its frame shows that ``train`` runs: from here on a signal interrupts. One that came earlier is not lost.

        A stop may have come between two attempts: ``train`` could wait for peers that don't come, so Restart is raised.
        """
        self._left.clear()
        try:
            if self._stop is not None and self._is_stopping:
                self._raised_at = "the call of train"
                raise Restart(self._stop)
            self._entered = True
            return train(gang)
        finally:
            self._left.set()

    def _leave(self, gang: Client, threads: Set[threading.Thread]) -> str:
        """End what ``train`` has left behind; returns why the attempt was stopped."""
        if self._aborting is not None:
            self._aborting.join()
        if self._offer is not None:
            self._offer(gang)
        while self._clients:
            self._clients.pop().close()
        for hook in self._finalize if self._entered else ():
            hook()
        gc.collect()
        _await_threads(threads)
        self._helpers.end()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return "" if self._stop is None else self._stop.reason

    # A stop comes.

    def _on_stop(self, stop: Event) -> None:
        """In the channel's thread."""
        thread = threading.Thread(target=self._call_abort, args=(stop,), name="gangclient-abort", daemon=True)
        with self._changed:  # So ``train`` can't be interrupted before the stop is known.
            self._aborting, self._stop = thread, stop
            self._fault = self._fault if stop.planned else stop
            thread.start()
            self._changed.notify_all()

    def _call_abort(self, stop: Event) -> None:
        for callback in self._abort:
            try:
                callback(stop)
            except Exception:  # noqa: BLE001, PERF203 - one callback must not keep the others from being called
                _log.exception("an abort callback has failed; the stop goes on")
        self._interrupting = stop
        main = threading.main_thread().ident
        while self._at_once and main is not None and not self._raised_at and not self._left.is_set():
            signal.pthread_kill(main, INTERRUPT)
            self._left.wait(_INTERRUPT_AGAIN)

    def _stop_within(self, seconds: float) -> Optional[Event]:
        """Return the stop of this attempt, if it comes by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping, seconds)
            return self._stop if self._is_stopping else None

    @property
    def _is_stopping(self) -> bool:
        return self._stop is not None and self._stop.attempt == self._attempt

    # ``train`` is interrupted, in the main thread.

    def _interrupt(self) -> None:
        """In ``gang.progress``: raise Restart if this attempt is being stopped."""
        stop = self._interrupting
        if stop is None or stop.attempt != self._attempt or threading.get_ident() != threading.main_thread().ident:
            return
        here = _place_in(threading.main_thread())
        if self._raised_at:
            _log.error(
                "gangclient.Restart was raised at %s, and something has caught it: gang.progress was called again at "
                "%s. "
                "Let it pass (no `except BaseException` or bare `except` without `raise`), or the process is killed",
                self._raised_at,
                here,
            )
        self._raised_at = here
        raise Restart(stop)

    def _guard(self) -> None:
        """Raise Restart if a fault stops this attempt, also while the callbacks run. A planned stop aborts nothing."""
        if self._fault is not None and self._fault.attempt == self._attempt:
            self._raised_at = _place_in(threading.main_thread())
            raise Restart(self._fault)

    def _on_interrupt(self, _signum: int, frame: Optional[FrameType]) -> None:
        """Raise Restart at the signal, only within ``train``, and once: the way out must not be interrupted."""
        stop, within = self._interrupting, frame
        while within is not None and within.f_code is not Session._call.__code__:
            within = within.f_back
        if within is None or stop is None or stop.attempt != self._attempt or self._raised_at:
            return
        self._raised_at = _place(frame)
        raise Restart(stop)

    def _on_late(self) -> None:
        """In the channel's thread, a moment before SIGKILL: log where the process is."""
        if self._aborting is not None and self._aborting.is_alive():
            where = f"an abort callback has not returned; it is at {_place_in(self._aborting)}"
        else:
            where = f"the main thread is at {_place_in(threading.main_thread())}"
            if self._raised_at:
                where += f"; gangclient.Restart was raised at {self._raised_at}"
        _log.error("this process has not parked in time and will be killed: %s", where)


def _await_threads(before: Set[threading.Thread]) -> None:
    """Wait until each thread has ended that ``train`` has started and that would keep a process from ending."""
    name_at = time.monotonic() + _NAME_THREADS
    while True:
        left = [one for one in threading.enumerate() if one not in before and not one.daemon]
        if not left:
            return
        left[0].join(0.02)
        if time.monotonic() > name_at:
            names = (f"{one.name} (at {_place_in(one)})" for one in left[:5])
            _log.warning("threads that train has started keep this process from parking: %s", ", ".join(names))
            name_at = float("inf")


def _forget(error: BaseException) -> None:
    """Let go of what the frames hold that the error has passed: models, buffers, connections."""
    waiting: List[Optional[BaseException]] = [error]
    seen: Dict[int, BaseException] = {}
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen[id(one)] = one
            waiting += [one.__context__, one.__cause__]
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None


def _place_in(thread: threading.Thread) -> str:
    return _place(sys._current_frames().get(thread.ident or 0))  # noqa: SLF001 - documented


def _place(frame: Optional[FrameType]) -> str:
    """The innermost line that is not ours."""
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def run(
    train: Train[Result],
    *,
    abort: Callback = (),
    finalize: Hook = (),
    interrupt: str = AT_PROGRESS,
    echo_seconds: float = 1.0,
    kept: Optional[Kept] = None,
) -> Result:
    """Call ``train(gang)`` in each attempt, in this same process; returns what it returns.

    Outside of gangctl, and in a process that the supervisor has not started itself (a child of torchrun), it calls
    ``train`` once.

    Args:
        train: the training. It takes the restore point from ``gang.restore``, the rank and the addresses of the attempt
            from the environment, and calls ``gang.progress``.
        abort: is called first on a stop, in a thread of its own, with the event: ends what ``train`` may wait for.
        finalize: is called after ``train`` has been left: ends what would outlive it, such as process groups.
        interrupt: ``at_progress``: the next ``gang.progress`` raises :class:`Restart`. ``at_once``: it is also raised
            wherever the main thread runs or waits in Python, when ``abort`` has returned.
        echo_seconds: an exception of ``train`` leaves the process only if no stop comes within so many seconds: it may
            be an echo of a peer's fault.
        kept: state that survives, such as :class:`gangclient.pytorch.KeptState`; it is offered to the next attempt.

    Raises:
        RuntimeError: it is called in another thread than the main thread, or inside of another ``run``.
        ValueError: ``interrupt`` is neither of the two.
    """
    global _inside  # noqa: PLW0603 - there is one main thread
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("gangclient.run must be called in the main thread: no other can be interrupted")
    if _inside == os.getpid():
        raise RuntimeError("gangclient.run is called inside of gangclient.run: one call lasts for the whole training")
    if interrupt not in {AT_PROGRESS, AT_ONCE}:
        raise ValueError(f"interrupt={interrupt!r}: it is {AT_PROGRESS!r} or {AT_ONCE!r}")
    _inside = os.getpid()
    try:
        ours = find_channel() if os.environ.get("GANG_SOCKET") else None
        if ours is not None:
            offer = None if kept is None else kept.offer
            session = Session(
                _listed(abort), _listed(finalize), echo_seconds, at_once=interrupt == AT_ONCE, offer=offer
            )
            return session.run(train, partial(Channel, ours))
        if os.environ.get("GANG_SOCKET"):
            _log.info(
                "gangctl's supervisor has not started this process itself (a launcher has), or a call of run has ended "
                "in it: it can't restart inside, and is started anew after a fault"
            )
        return train(connect())
    finally:
        _inside = None


def _listed(given: Any) -> List[Any]:
    return [given] if callable(given) else list(given)
