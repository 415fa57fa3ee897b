"""``gangclient.run``: a process that survives the restarts of its gang.

The rule: this process obeys. It stops when the supervisor tells it to, says that it has parked once ``train`` has been
left, its hooks have run and none of its threads is left, and calls ``train`` again when the supervisor tells it to. If
it is not there in time, it is killed as ever, and the log has the place where it was.
"""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import Any, Callable, Iterable, Optional, Union

from gangclient._client import Event, connect
from gangclient._parking import Channel, find
from gangclient._session import Result, Session, Train

Callback = Union[Callable[[Event], object], Iterable[Callable[[Event], object]]]
Hook = Union[Callable[[], object], Iterable[Callable[[], object]]]

AT_PROGRESS = "at_progress"
AT_ONCE = "at_once"
_log = logging.getLogger("gangclient")
_inside: Optional[int] = None
"""The process that is in ``run``."""


def run(
    train: Train[Result],
    *,
    abort: Callback = (),
    finalize: Hook = (),
    interrupt: str = AT_PROGRESS,
    echo_seconds: float = 1.0,
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
        ours = find() if os.environ.get("GANG_SOCKET") else None
        if ours is not None:
            session = Session(list(_each(abort)), list(_each(finalize)), echo_seconds, at_once=interrupt == AT_ONCE)
            return session.run(train, partial(Channel, ours))
        if os.environ.get("GANG_SOCKET"):
            _log.info(
                "gangctl's supervisor has not started this process itself (a launcher has), or a call of run has ended "
                "in it: it can't restart inside, and is started anew after a fault"
            )
        return train(connect())
    finally:
        _inside = None


def _each(given: Any) -> Iterable[Any]:
    return (given,) if callable(given) else given
