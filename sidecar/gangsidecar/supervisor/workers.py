"""The processes of a worker: starts those of a Run, and knows which child of the supervisor is which.

The file ``workers.json``, beside the state file, says the same to those who look from outside (``gangctl inject``): a
process that was forked shows the environment and the command of its template.
"""

from __future__ import annotations

import json
import os
from typing import Dict, Iterable, List, Optional, Set

from gangsidecar import wire
from gangsidecar.common.log import log
from gangsidecar.supervisor import caches, launch, machine, processes
from gangsidecar.supervisor.event_loop import EventLoop
from gangsidecar.supervisor.settings import SupervisorSettings
from gangsidecar.supervisor.warm_start import WarmSettings, WarmStart

HOSTFILE = "hostfile"
"""Beside the socket: address and slots of the attempt's members, as mpirun takes them."""
IMPORTS = "imports"
"""Beside the state file: what the worker has imported, a module a line."""


class Workers:
    """Starts the worker's processes, as forks of a template where the pod asks for that."""

    def __init__(self, loop: EventLoop, settings: SupervisorSettings, helpers: Set[int]) -> None:
        """``helpers``: the pids that belong to no worker."""
        self._settings = settings
        self._folder = os.path.dirname(settings.state)
        given = dict(os.environ)
        self._environment = {**given, **caches.variables(settings.caches, settings.compilers, given)}
        """What each process of each attempt gets."""
        self._mains: Dict[int, launch.MainProcess] = {}
        self._warm = WarmStart(loop, self._warm_settings(), helpers) if settings.preload else None

    def begin(self) -> None:
        """The supervisor has begun: nothing trains yet."""
        self._publish({})
        if self._warm is not None:
            self._warm.begin()

    @property
    def pids(self) -> Iterable[int]:
        """The processes that were started and have not ended."""
        return self._mains

    def start(self, effect: machine.Spawn) -> List[machine.Event]:
        """Start the processes; returns what the machine is to learn."""
        settings = self._settings
        hostfile = os.path.join(os.path.dirname(settings.socket), HOSTFILE)
        try:
            launch.write_hosts(hostfile, effect.run.hosts)
        except OSError as error:
            log("warning", "the host file can't be written", file=hostfile, reason=error)
        spawn = processes.spawn
        if self._warm is not None:
            self._warm.new_attempt(effect.attempt)
            spawn = self._warm.spawn
        events: List[machine.Event] = []
        ranks: Dict[int, Optional[int]] = {}
        for process in effect.run.processes:
            env = launch.environment(self._environment, process, settings.identity.pod, settings.client)
            try:
                pid, started = launch.start(settings.command, env, process.local_rank, spawn)
            except (OSError, ValueError) as error:
                failed = launch.failed(settings.command[0], process.local_rank, error)
                log("error", "the worker could not be executed", attempt=effect.attempt, reason=failed.message)
                events.append(failed)
                continue
            self._mains[pid] = started
            ranks[pid] = process.rank
        self._publish(ranks)
        return [*events, machine.Started(None if self._warm is None else self._warm.told)]

    def ended(self, pid: int, status: int) -> Optional[machine.Exited]:
        """A child was reaped; returns how it ended if it is a process of the worker."""
        started = self._mains.pop(pid, None)
        if started is not None:
            return launch.ended(started, status)
        if self._warm is not None and self._warm.ended(pid) and os.WIFSIGNALED(status):
            self._mains = {pid: launch.without_one_oom_kill(main) for pid, main in self._mains.items()}
        return None

    def progressed(self, progress: wire.Progress) -> None:
        """The worker has reported progress."""
        if self._warm is not None:
            self._warm.progressed(progress)

    def end(self) -> None:
        """The supervisor ends."""
        if self._warm is not None:
            self._warm.end()

    def _publish(self, ranks: Dict[int, Optional[int]]) -> None:
        path = os.path.join(self._folder, wire.WORKERS_FILE)
        try:
            with open(path + ".tmp", "w", encoding="ascii") as file:
                json.dump(ranks, file)
            os.replace(path + ".tmp", path)
        except OSError as error:
            log("warning", "the list of the worker's processes can't be written", file=path, reason=error)

    def _warm_settings(self) -> WarmSettings:
        given = self._settings
        nothing = wire.Process(0, ())
        return WarmSettings(
            preload=given.preload,
            command=given.command,
            environment=launch.environment(self._environment, nothing, given.identity.pod, given.client),
            imports=os.path.join(self._folder, IMPORTS),
        )
