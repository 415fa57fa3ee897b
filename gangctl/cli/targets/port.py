"""The port to a place where gangs are. Each call may raise UserError or ClusterError: sentences for the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from gangctl.api.changes import SpecChanges
from gangctl.api.gangjob import GangJob
from gangctl.cli.gang_view import GangView
from gangctl.cluster.local.pod_processes import PodProcess

DEFAULT_LEASE: Final = "gangctl-system/gangctl"
"""The Lease of a cluster's controller, where the chart puts it if it is installed as its documentation says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """What is to be done to a process."""

    process: PodProcess
    rank: int | None = None
    """Only the worker's process of this rank."""
    signal: tuple[str, int] | None = None
    """Name and number."""
    exit_code: int | None = None
    """Exit with it; else a signal is sent."""
    tree: bool = False
    """What is below the processes as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Which part of the logs."""

    members: tuple[str, ...]
    sidecar: bool = False
    follow: bool = False
    previous: bool = False
    """Of the container, or locally the pod, before this one."""
    tail: int | None = None
    """So many lines from the end."""
    since: int | None = None
    """Not older than so many seconds."""


Sink = Callable[[str, bytes], None]
"""Takes a member and one line of its log, without the line's end."""


class Target(Protocol):
    """A state directory of this machine, or a namespace of a cluster."""

    @property
    def location(self) -> str:
        """The place in words."""

    def views(self, name: str | None) -> Sequence[GangView]:
        """One look at the gang of this name, with its members; without a name at all gangs, by name."""

    def watch(self, name: str | None, show: Callable[[Sequence[GangView]], None]) -> NoReturn:
        """Show the same now and with every change."""

    def documents(self, name: str | None) -> Sequence[Mapping[str, Any]]:
        """The stored objects, for programs."""

    def read(self, name: str) -> GangJob:
        """The gang as it is stored."""

    def latest(self, name: str) -> GangJob:
        """The same, with what the controller knows beyond it where it can be asked for that."""

    def change(self, name: str, spec: SpecChanges) -> GangJob:
        """Set fields of the spec, by their names in YAML; the gang as it is stored then."""

    def wait(self, name: str, over: Callable[[GangJob], bool], seconds: float) -> GangJob:
        """The gang as soon as ``over`` holds of it, or as it is after so many seconds."""

    def warn_without_controller(self) -> None:
        """Tell the user if nobody is there to act on a change, as far as it can be seen."""

    @property
    def start_hint(self) -> str:
        """What to do where there are no gangs."""

    def rerun_hint(self, name: str) -> str:
        """How a gang that has ended is run once more."""

    def logs_hint(self, name: str) -> str:
        """Where the logs of its pods are, or the command that shows them."""

    def logs(self, job: GangJob, options: LogOptions, sink: Sink) -> None:
        """Give the log line by line."""

    def inject(self, job: GangJob, member: str, fault: InjectedFault) -> Sequence[str]:
        """Do it to processes of a member; says what was done to which."""

    def inject_controller(self, fault: InjectedFault, lease: str) -> None:
        """Do it to the controller, and say so. ``lease``: NAMESPACE/NAME of a cluster's."""
