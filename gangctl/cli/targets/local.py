"""Gangs of this machine: a state directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from gangctl.api.gangjob import GangJob, Spec
from gangctl.cli import gangs
from gangctl.cli.errors import UserError
from gangctl.cli.live import Look, look
from gangctl.cli.output import say, tell
from gangctl.cli.targets import local_harm, local_logs
from gangctl.cli.targets.port import Harm, Sink, Wanted
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import process
from gangctl.cluster.local.inject import controller_pid
from gangctl.cluster.local.layout import StateDirectory

LOOK_SECONDS: Final = 0.1
"""How often a stored gang is looked at while a change is waited for."""
PICTURE_SECONDS: Final = 0.5
_FIELDS: Final = {field.alias: name for name, field in Spec.model_fields.items()}


class LocalPlace:
    """One state directory."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    @property
    def where(self) -> str:
        """The place in words."""
        return str(self._state.path)

    def looks(self, name: str | None) -> Sequence[Look]:
        """The controller's own view while it answers; else what is stored."""
        now = time.time()
        names = gangs.names(self._state) if name is None else [name]
        return [look(self._state, gangs.find(self._state, one), now) for one in names]

    def watch(self, name: str | None, show: Callable[[Sequence[Look]], None]) -> NoReturn:
        """Twice a second: steps move without anything being written."""
        while True:
            show(self.looks(name))
            time.sleep(PICTURE_SECONDS)  # the rate of a picture, nothing waits for it

    def documents(self, name: str | None) -> Sequence[Mapping[str, Any]]:
        """The objects as they are stored."""
        names = gangs.names(self._state) if name is None else [name]
        return [self.read(one).model_dump(mode="json", by_alias=True, exclude_none=True) for one in names]

    def read(self, name: str) -> GangJob:
        """The gang as it is stored."""
        return gangs.read(gangs.find(self._state, name))

    def latest(self, name: str) -> GangJob:
        """Timings are stored up to half a minute after the first step; until then they may move by milliseconds."""
        found = look(self._state, gangs.find(self._state, name), time.time())
        return found.job.model_copy(update={"status": found.snapshot.status})

    def change(self, name: str, spec: Mapping[str, str | bool]) -> GangJob:
        """Write the spec."""
        update = {_FIELDS[field]: value for field, value in spec.items()}
        return gangs.find(self._state, name).update_spec(lambda old: old.model_copy(update=update))

    def wait(self, name: str, over: Callable[[GangJob], bool], seconds: float) -> GangJob:
        """The file is looked at, for as long as it takes."""
        store = gangs.find(self._state, name)
        end = time.monotonic() + seconds
        while True:
            job = gangs.read(store)
            if over(job) or time.monotonic() >= end:
                return job
            time.sleep(LOOK_SECONDS)

    def warn_without_controller(self) -> None:
        """A controller here is a process."""
        try:
            controller_pid(self._state)
        except ClusterError:
            tell(f"no controller runs for {self._state.path}: it takes effect with the next gangctl run")

    @property
    def beginning(self) -> str:
        """Run one."""
        return "start one with gangctl run FILE"

    def anew(self, name: str) -> str:
        """`gangctl run` replaces what has ended."""
        del name
        return "gangctl run FILE starts it anew"

    def logs_of(self, name: str) -> str:
        """Their paths."""
        return str(self._state.gang(name).pods / Path("POD") / "worker.log")

    def logs(self, job: GangJob, wanted: Wanted, sink: Sink) -> None:
        """From the files of the pods."""
        local_logs.give(self._state.gang(job.metadata.name), wanted, sink)

    def harm(self, job: GangJob, member: str, harm: Harm) -> Sequence[str]:
        """Signals and ptrace on this machine."""
        return local_harm.harm(self._state.gang(job.metadata.name), member, harm)

    def harm_controller(self, harm: Harm, lease: str) -> None:
        """A signal to its process."""
        del lease
        if harm.signal is None:
            raise UserError("the controller can only be signalled: --kill-controller, --hang, --unhang, --signal")
        name, number = harm.signal
        found = process.process_of(controller_pid(self._state))
        if found is None or not process.send(found, number):
            raise UserError(f"no controller runs for {self._state.path}")
        say(f"controller: sent {name} to process {found.pid}")
