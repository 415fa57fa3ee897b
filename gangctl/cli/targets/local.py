"""The target for gangs of this machine: a state directory, its files and its processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.recovery import SpecChanges
from gangctl.cli.errors import UserError
from gangctl.cli.gang_view import GangView, view_gang, view_removed
from gangctl.cli.local import gangs as local_gangs
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.targets import ending, logs
from gangctl.cli.targets.port import InjectedFault, LogOptions, PageAccess, RunHere, Say, Sink
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import process
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY, GangStore
from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory
from gangctl.cluster.local.pod_record import PodProcess, PodRecord, controller_pid, live_processes, pod_of, projection
from gangctl.cluster.local.process import LocalProcess
from gangctl.cluster.local.ptrace import exit_with
from gangctl.explain.why.world import GangSurroundings

if TYPE_CHECKING:
    from gangctl.cli.page import Upstream

POLL_SECONDS: Final = 0.1
"""Interval at which a stored gang is read while waiting for a change."""
REDRAW_SECONDS: Final = 0.5


class LocalTarget:
    """One state directory."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    @property
    def location(self) -> str:
        """The path of the state directory."""
        return str(self._state.path)

    def views(self, name: str | None) -> Sequence[GangView]:
        """The controller's snapshot if it answers, otherwise what is stored."""
        return list(map(self._view, local_gangs.names_with_removed(self._state) if name is None else [name]))

    def _view(self, name: str) -> GangView:
        store = local_gangs.find_gang(self._state, name, or_removed=True)
        at = store.removed_at()
        return view_gang(self._state, store, time.time()) if at is None else view_removed(store, at)

    def watch(self, name: str | None, show: Callable[[Sequence[GangView]], None]) -> NoReturn:
        """Poll twice a second, because steps change without any write."""
        while True:
            if name is not None:
                local_gangs.find_gang(self._state, name)  # Watching ends with the gang.
            show(self.views(name))
            time.sleep(REDRAW_SECONDS)  # the redraw rate; nothing waits for it

    def documents(self, name: str | None) -> Sequence[Mapping[str, Any]]:
        """The objects as they are stored, or were when they were removed."""
        jobs = map(self.logged, local_gangs.names_with_removed(self._state) if name is None else [name])
        return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in jobs]

    def read(self, name: str) -> GangJob:
        return local_gangs.find_gang(self._state, name).read()

    def logged(self, name: str) -> GangJob:
        """Ctrl-C of `gangctl run` removes a gang, and its logs stay."""
        return local_gangs.read_logged(self._state, name)

    def latest(self, job: GangJob) -> GangJob:
        """With the controller's timings, which are stored only up to half a minute after the first step."""
        name = job.metadata.name
        if self.is_removed(name):
            print_err(f"gang {name} was interrupted, and its processes were ended: this is what was stored last")
            return job
        found = view_gang(self._state, local_gangs.find_gang(self._state, name), time.time())
        return changed(found.job, status=found.snapshot.status)

    def names(self) -> Sequence[str]:
        """The gangs that are stored, or were when they were removed."""
        return local_gangs.names(self._state) or local_gangs.names(self._state, "removed.json")

    def is_removed(self, name: str) -> bool:
        """Return whether only its logs and its last status are left."""
        return GangStore(self._state.gang(name)).removed_at() is not None

    def surroundings(self, job: GangJob) -> GangSurroundings:
        """Pods from their files, and what the controller hears of members. There are no nodes."""
        store = GangStore(self._state.gang(job.metadata.name))
        at = store.removed_at()
        if at is not None:
            return GangSurroundings(interrupted_at=at)
        found = view_gang(self._state, store, time.time())
        members = {one.member: one for one in found.snapshot.members} if found.live else {}
        pods = tuple(projection(pod) for pod in found.pods if pod.gang == job.metadata.uid)
        return GangSurroundings(pods=pods, members=members, is_led=found.live, unstored=found.snapshot.unstored)

    def change(self, name: str, spec: SpecChanges) -> GangJob:
        """Write the spec."""
        return local_gangs.find_gang(self._state, name).update_spec(lambda old: changed(old, **spec))

    def wait(self, name: str, over: Callable[[GangJob], bool], seconds: float) -> GangJob:
        """Poll the stored file."""
        store = local_gangs.find_gang(self._state, name)
        end = time.monotonic() + seconds
        while True:
            job = store.read()
            if over(job) or time.monotonic() >= end:
                return job
            time.sleep(POLL_SECONDS)

    def warn_without_controller(self) -> None:
        """Warn if no controller process runs."""
        if controller_pid(self._state) is None:
            print_err(f"no controller runs for {self._state.path}: the gang reacts with the next gangctl run FILE")

    @property
    def start_hint(self) -> str:
        """Command that starts a gang."""
        return "gangctl run FILE starts one"

    def rerun_hint(self, name: str) -> str:
        """Command that replaces the gang."""
        return f"gangctl rerun {name} runs it again"

    def stop(self, name: str, seconds: float | None, say: Say) -> bool:
        """Let the controller stop it, or end its processes if none runs."""
        return ending.stop_local(self._state, local_gangs.find_gang(self._state, name), seconds, say)

    def delete(self, name: str, seconds: float | None, say: Say) -> bool:
        """Stop it, and remove its files."""
        return ending.delete_local(self._state, local_gangs.find_gang(self._state, name, or_removed=True), seconds, say)

    def rerun(self, name: str, run_here: RunHere, say: Say) -> int:
        """Run its stored spec where it ran before."""
        del say
        job = self.logged(name)
        folder = (job.metadata.model_extra or {}).get("annotations", {}).get(ANNOTATION_DIRECTORY, "/")
        return run_here(self._state, changed(job, spec=ending.without_requests(job.spec)), Path(folder))

    def logs_hint(self, name: str) -> str:
        """Path pattern of the logs."""
        return str(self._state.gang(name).pods / Path("POD") / "worker.log")

    def logs(self, job: GangJob, options: LogOptions, sink: Sink) -> None:
        """Read the log files of the pods."""
        logs.stream_files(GangStore(self._state.gang(job.metadata.name)), options, sink)

    def inject(self, job: GangJob, member: str, fault: InjectedFault) -> Sequence[str]:
        """Use signals and ptrace on this machine."""
        return _inject(self._state.gang(job.metadata.name), member, fault)

    def inject_controller(self, fault: InjectedFault, lease: str) -> None:
        """Send a signal to its process."""
        del lease
        if fault.signal is None:
            raise UserError(
                "only a signal can be sent to the controller: use --kill-controller, --hang, --unhang or --signal"
            )
        name, number = fault.signal
        pid = controller_pid(self._state)
        found = None if pid is None else process.process_of(pid)
        if found is None or not process.signal_process(found, number):
            raise UserError(f"no controller runs for {self._state.path}")
        print_out(f"controller: process {found.pid} was sent {name}")

    def show_page(self, access: PageAccess, serve: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
        """The controller's live endpoint has it."""
        # imported only here, because aiohttp takes longer than a status
        from gangctl.cli.page import LocalController  # noqa: PLC0415

        del access
        asyncio.run(serve(LocalController(self._state)))


def _inject(folder: GangFolder, member: str, fault: InjectedFault) -> list[str]:
    """Inject the fault into processes of a local pod; return what was done to which process."""
    pod = pod_of(folder, member)
    found = _processes(pod, folder.pod(pod.name), fault.process, fault.rank)
    subject = f"{pod.member} (pod {pod.name}): {fault.process}"
    if fault.exit_code is not None:
        for one in found:
            exit_with(one.pid, fault.exit_code)
        return [f"{subject} process {one.pid} exits with {fault.exit_code}" for one in found]
    assert fault.signal is not None
    name, number = fault.signal
    if fault.tree:
        found = tuple(dict.fromkeys(each for one in found for each in (one, *process.descendants(one))))
    try:
        sent = [one for one in found if process.signal_process(one, number)]
    except PermissionError as error:
        raise UserError(f"a process of {member} can't be signalled: {error.strerror}") from None
    if not sent:
        raise Terminal(f"{subject}: all processes ended before {name} could be sent")
    return [f"{subject} process {one.pid} was sent {name}" for one in sent]


def _processes(pod: PodRecord, files: PodFolder, kind: PodProcess, rank: int | None) -> tuple[LocalProcess, ...]:
    found = live_processes(pod, files, kind)
    if not found:
        raise Terminal(f"no {kind} process is running in pod {pod.name}; gangctl status shows the state of the gang")
    if rank is None:
        return tuple(found)
    matching = tuple(one for one, its in found.items() if its == rank)
    if not matching:
        ranks = ", ".join(str(its) for its in sorted(its for its in found.values() if its is not None))
        raise UserError(f"no process of {pod.member} has rank {rank}; its ranks: {ranks or 'none'}")
    return matching
