"""The port to a target: a place with gangs. Each call may raise UserError or ClusterError, with a message for users."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from gangctl.api.gangjob import GangJob
from gangctl.api.recovery import SpecChanges
from gangctl.cli.gang_view import GangView
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.pod_record import PodProcess
from gangctl.explain.why.world import GangSurroundings

if TYPE_CHECKING:
    # it imports aiohttp, which takes longer than a status
    from gangctl.cli.page import Upstream

DEFAULT_LEASE: Final = "gangctl-system/gangctl"
"""Lease of the controller on a cluster, with the namespace and release name that the chart's documentation uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault to inject into a process."""

    process: PodProcess
    rank: int | None = None
    """Only the worker process of this rank."""
    signal: tuple[str, int] | None = None
    """Name and number."""
    exit_code: int | None = None
    """Make the process exit with this code; if absent, send the signal."""
    tree: bool = False
    """Also signal all descendants of the processes."""


class LogSource(StrEnum):
    """The program whose log to print."""

    WORKER = "worker"
    SIDECAR = "sidecar"
    GANGCTL = "gangctl"
    """Supervisor and sidecar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The logs to print, and the part of them."""

    members: tuple[str, ...]
    source: LogSource = LogSource.WORKER
    follow: bool = False
    previous: bool = False
    """The previous container (on this machine: the previous pod)."""
    tail: int | None = None
    """Number of lines from the end."""
    since: int | None = None
    """Maximum age of a line in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """The way to the page of a cluster's controller."""

    lease: str = DEFAULT_LEASE
    """NAMESPACE/NAME of the Lease that the controller holds."""
    service_account: str = ""
    """NAMESPACE/NAME of the account whose token the page gets; empty: the user's own token."""


Sink = Callable[[str, bytes], None]
"""Receives a member and one line of its log, without the newline."""

Say = Callable[[str], None]
"""Tells the user one line about what is done."""
RunHere = Callable[[StateDirectory, GangJob, Path], int]
"""Runs a gang on this machine to its end, with its workers in this folder, and returns the exit code."""


class Target(Protocol):
    """A state directory of this machine, or a namespace of a cluster."""

    @property
    def location(self) -> str:
        """The target in words, for messages."""

    def views(self, name: str | None) -> Sequence[GangView]:
        """A view of the gang of this name, with its members; without a name, views of all gangs, sorted by name."""

    def watch(self, name: str | None, show: Callable[[Sequence[GangView]], None]) -> NoReturn:
        """Show the views now and after every change."""

    def documents(self, name: str | None) -> Sequence[Mapping[str, Any]]:
        """The stored objects, as programs read them."""

    def read(self, name: str) -> GangJob:
        """The gang as it is stored."""

    def logged(self, name: str) -> GangJob:
        """The gang whose logs there are: on this machine also one that was removed while its logs were kept."""

    def latest(self, job: GangJob) -> GangJob:
        """The gang, which was read just now, with newer data of the controller where the target offers it."""

    def surroundings(self, job: GangJob) -> GangSurroundings:
        """The surroundings of a gang, to tell why it does not run. A missing right is part of them, not an error."""

    def change(self, name: str, spec: SpecChanges) -> GangJob:
        """Set fields of the spec, by their YAML names; return the gang as it is stored then."""

    def wait(self, name: str, over: Callable[[GangJob], bool], seconds: float) -> GangJob:
        """Wait until ``over`` is true for the gang, or the seconds have passed; return the gang."""

    def warn_without_controller(self) -> None:
        """Warn the user if no controller runs that would act on a change or a fault, as far as can be seen."""

    @property
    def start_hint(self) -> str:
        """Advice if there are no gangs."""

    def rerun_hint(self, name: str) -> str:
        """The command that runs a gang again that has ended."""

    def stop(self, name: str, seconds: float | None, say: Say) -> bool:
        """Suspend a gang and wait until nothing of it runs; False if it does after these seconds (None: enough)."""

    def delete(self, name: str, seconds: float | None, say: Say) -> bool:
        """Remove a gang and what runs of it; False if it is still there after these seconds (None: enough)."""

    def names(self) -> Sequence[str]:
        """The gangs that there are, or else those of :meth:`logged`."""

    def is_removed(self, name: str) -> bool:
        """Return whether the gang of :meth:`logged` is one that was removed."""

    def rerun(self, name: str, run_here: RunHere, say: Say) -> int:
        """Run a gang again that has ended, from its stored spec; return the exit code."""

    def logs_hint(self, name: str) -> str:
        """Path of the logs of its pods, or the command that prints them."""

    def logs(self, job: GangJob, options: LogOptions, sink: Sink) -> None:
        """Pass the logs to the sink, line by line."""

    def inject(self, job: GangJob, member: str, fault: InjectedFault) -> Sequence[str]:
        """Inject the fault into processes of a member; return what was done to which process."""

    def inject_controller(self, fault: InjectedFault, lease: str) -> None:
        """Inject the fault into the controller and print it. ``lease``: NAMESPACE/NAME on a cluster."""

    def show_page(self, access: PageAccess, serve: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
        """Call ``serve`` with the controller that has the page."""
