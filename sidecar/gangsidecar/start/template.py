"""The template: a process that has imported what the worker will import, and forks when the supervisor asks.

It is no worker: it has no attempt, no rank, runs no file of the user, and opens no port and no device. A child runs
nothing of the user's before the supervisor has said that it knows it.

Both sides send lines of JSON. The supervisor asks, and the template or its child answers::

    {"preload": [name, ...], "pace": 0.1}                {"failed": [name and error, ...], "obstacle": "", "by": ""}
    {"fork": {name: value, ...}, "command": [word, ...]} {"pid": 4321, "obstacle": "", "by": ""}
    {"go": true}

With the request for a fork comes a file: the socket on which the child answers, and is told to go on. If there are two
more, they become its standard output and standard error. An obstacle is answered on the socket, without a pid.
``pace`` is the share of the time that imports may take: while the worker trains, they must not take a core from it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any, NoReturn

from gangsidecar.start import child, obstacles, variables
from gangsidecar.start.first_rank import wait_for_first_rank
from gangsidecar.start.link import PARKING, address, receive, send
from gangsidecar.start.main_module import Target


class Template:
    """Serves one supervisor until it closes the connection."""

    def __init__(self, descriptor: int, loaded: AbstractSet[str]) -> None:
        """``loaded``: the modules that Python itself had loaded."""
        self._connection = socket.socket(fileno=descriptor)
        self._loaded = loaded
        self._before = obstacles.Surroundings.now()
        self._environment = dict(os.environ)
        self._by_python = child.set_by_python()
        self._pid = os.getpid()
        self._versions: dict[str, obstacles.Version] = {}
        self._failed: dict[str, str] = {}

    def serve(self) -> list[str]:
        """Returns the command in a child that may run. In the template it never returns."""
        while True:
            text, files = receive(self._connection)
            if not text:
                os._exit(0)  # What the modules have registered for the end of a worker is not for a template.
            message = json.loads(text)
            if "preload" in message:
                self._preload(message["preload"], message["pace"])
                continue
            link, output = socket.socket(fileno=files[0]), files[1:]
            environment = {**self._by_python, **message["fork"]}
            if self._has_forked(message["command"], environment, link, files):
                self._become_a_start(environment, link, output)
                return list(message["command"])
            link.close()
            for file in output:
                os.close(file)

    def _preload(self, names: Sequence[str], pace: float) -> None:
        pacer = _Pacer(pace)
        sys.meta_path.insert(0, pacer)
        found = by = ""
        for name in names:
            if name in sys.modules or name in self._failed:
                continue
            variables.importing(name)
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001 - a module may even call sys.exit
                self._failed[name] = f"{name} ({type(error).__name__}: {error})"[:100]
            if os.getpid() != self._pid:
                os._exit(0)  # The module has forked, and this is its child.
            found = obstacles.left_open(self._before, by=f"importing {name}")
            if found:
                by = name
                break
        variables.importing("")
        sys.meta_path[:] = [one for one in sys.meta_path if one is not pacer]
        child.flush()
        gc.collect()
        gc.freeze()  # Else the child's first collection writes to every page, and the pages are no longer shared.
        self._versions = obstacles.versions(sorted(sys.modules))
        send(
            self._connection,
            failed=list(self._failed.values())[:10],
            obstacle=found or obstacles.shares_memory(self._before),
            by=by,
        )

    def _has_forked(
        self, command: list[str], environment: dict[str, str], link: socket.socket, files: list[int]
    ) -> bool:
        """Fork, if nothing stands against it; True in the child. ``files``: those that came with the request."""
        by, read = variables.stale(self._environment, environment)
        found = (f"{read}: {obstacles.ADVICE}" if read else "") or (
            obstacles.left_open(self._before, files)
            or obstacles.shares_memory(self._before)
            or obstacles.changed(self._versions)
            or obstacles.shadowed(Target.of(command).first_in_path, self._loaded)
        )
        try:
            if not found:
                child.flush()
                between = os.fork()
                if not between:
                    return True
                _wait(between)
        except OSError as error:
            found = f"the template can't fork: {error}"
        if found:
            send(link, obstacle=found, by=by)
        return False

    def _become_a_start(self, environment: dict[str, str], link: socket.socket, output: list[int]) -> None:
        """In the child, whose own child goes on as one of the supervisor, if the supervisor says so."""
        try:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0001)  # Until the supervisor is the parent.
            self._connection.close()
            obstacle = child.become_a_start(self._environment, environment, output)
            send(link, pid=os.getpid(), obstacle=obstacle)
            if receive(link)[0]:
                os.environ[PARKING] = address(link)
                link.detach()  # It stays open: on it the worker parks.
                wait_for_first_rank(environment)
                return
        except BaseException as error:  # noqa: BLE001 - no error of ours may be taken for the worker's
            _give_up(link, f"the fork failed: {type(error).__name__}: {error}"[:200])
        os._exit(0)  # The supervisor has refused this child, or has gone.


def _wait(child: int) -> None:
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        return  # A module ignores SIGCHLD: the kernel has reaped it.


def _give_up(link: socket.socket, obstacle: str) -> NoReturn:
    try:
        send(link, obstacle=obstacle)
    finally:
        os._exit(0)


class _Pacer:
    """Slows imports down: before each module it waits as long as the time that was used demands."""

    def __init__(self, pace: float) -> None:
        self._rest = 1 / pace - 1
        self._used = time.process_time()

    def find_spec(self, _name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        """Find nothing."""
        used = time.process_time()
        time.sleep(self._rest * (used - self._used))
        self._used = used
