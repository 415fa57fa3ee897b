"""The helper processes of ``multiprocessing``: none is left when the process parks, and what globals hold goes on.

The standard library starts them again when it needs them. The fork server ends as at the end of a process. The resource
tracker must not: it would unlink all that is registered, also shared memory and semaphores that are still in use. So it
is killed. The next one is told of what this process has made and still holds; it must never be told of what belongs to
another process, since it unlinks that in the end.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import weakref
from itertools import chain
from typing import Any, Iterable, Iterator, Set, Tuple

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the kernel has it


class Helpers:
    """Those of this process."""

    def __init__(self) -> None:
        """Before what is there by now is frozen: :func:`gc.get_objects` doesn't have it afterwards."""
        early = _registrable(gc.get_objects()) if _tracker_runs() else ()
        self._early = [weakref.ref(one) for one in early]
        self._registered: Set[Tuple[str, str]] = set()
        """What the next tracker is told: name and kind."""

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
    """What this process has made, has registered as the standard library does, and has neither unlinked nor let go."""
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
    """Of a module of multiprocessing; None where that isn't imported or has none."""
    found: Any = sys.modules.get(f"multiprocessing.{module}")
    for name in names:
        found = getattr(found, name, None)
    return found
