"""The target for gangs of a cluster: each call of the port runs to its end on one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.names import LABEL_GANG, LABEL_UID, parse_member_name
from gangctl.api.recovery import SpecChanges
from gangctl.api.status import Snapshot
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.gang_view import GangView
from gangctl.cli.page import Upstream
from gangctl.cli.printers.output import print_err
from gangctl.cli.targets import ending, logs
from gangctl.cli.targets.gangjobs import GangJobs, unreadable_text
from gangctl.cli.targets.leader import LeadingController, kill_leader, warn_without_leader
from gangctl.cli.targets.pod_exec import inject_in_pod
from gangctl.cli.targets.port import InjectedFault, LogOptions, PageAccess, RunHere, Say, Sink
from gangctl.cli.targets.surroundings import surroundings
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.projections import GANGS, PODS, KubePod
from gangctl.cluster.kube.reflector import Reflector, list_all
from gangctl.core.facts.world import Observed
from gangctl.core.record.snapshot import snapshot
from gangctl.explain.why.world import GangSurroundings

_T = TypeVar("_T")
_REDRAW_SECONDS: Final = 0.3
"""Minimum interval between redraws: a restarting gang changes up to a hundred times a second."""
_AGE_SECONDS: Final = 5.0
"""Redraw after this time even without a change, because ages grow."""


class ClusterTarget:
    """One namespace of a cluster, or all namespaces."""

    def __init__(self, runner: asyncio.Runner, client: Client, namespace: str, *, everywhere: bool) -> None:
        self._runner = runner
        self._client = client
        self._everywhere = everywhere
        self._gangs = GangJobs(client, namespace, everywhere=everywhere)

    @classmethod
    @contextmanager
    def open_cluster(
        cls, kubeconfig: Path | None, context: str | None, namespace: str | None, *, everywhere: bool
    ) -> Iterator[ClusterTarget]:
        """Connect to the selected cluster; the connections are closed at the end."""
        with asyncio.Runner() as runner:
            client = runner.run(Client.open(kubeconfig, context))
            try:
                yield cls(runner, client, namespace or client.namespace, everywhere=everywhere)
            finally:
                runner.run(client.close())

    def gang_of(self, named: str) -> str:
        """The name of the gang that runs an object, which is named as kubectl does: jobset/llama, trainjob/llama."""
        return self._run(self._gangs.made_from(named))

    @property
    def location(self) -> str:
        """The namespace and the address of the cluster."""
        what = "all namespaces" if self._everywhere else f"namespace {self._gangs.namespace}"
        return f"{what} of {self._client.server}"

    def views(self, name: str | None) -> Sequence[GangView]:
        """From the stored status; for one gang also from its pods."""
        return self._run(self._views(name))

    def watch(self, name: str | None, show: Callable[[Sequence[GangView]], None]) -> NoReturn:
        """Use watches instead of polling."""
        self._run(self._watch(name, show))
        raise AssertionError("a watch has no end")

    def documents(self, name: str | None) -> Sequence[Mapping[str, Any]]:
        """The objects as the API server has them."""
        return self._run(self._gangs.documents()) if name is None else [self._run(self._gangs.document(name))]

    def read(self, name: str) -> GangJob:
        return self._run(self._gangs.read(name))

    def logged(self, name: str) -> GangJob:
        """The gang as it is stored: logs go with its pods."""
        return self.read(name)

    def latest(self, job: GangJob) -> GangJob:
        """The stored gang: users of a cluster need no connection to its controller."""
        return job

    def surroundings(self, job: GangJob) -> GangSurroundings:
        """From pods and, if one waits for a node, from nodes and what is on them; warns if no controller leads."""
        self.warn_without_controller()
        return self._run(surroundings(self._client, job))

    def change(self, name: str, spec: SpecChanges) -> GangJob:
        """Patch the spec."""
        if "suspend" in spec:
            self._run(self._gangs.refuse_owned(name))
        return self._run(self._gangs.change(name, spec))

    def wait(self, name: str, over: Callable[[GangJob], bool], seconds: float) -> GangJob:
        """Use a watch."""
        return self._run(self._wait(name, over, seconds))

    def warn_without_controller(self) -> None:
        """Check the Lease, if this user may read it."""
        self._run(warn_without_leader(self._client))

    @property
    def start_hint(self) -> str:
        """Command that submits a gang, and where else to look."""
        others = "" if self._everywhere else "; gangctl status -A shows those of all namespaces"
        return f"kubectl apply -f FILE submits one{others}"

    def rerun_hint(self, name: str) -> str:
        """Command that deletes it and creates it again."""
        return f"to run it again, gangctl rerun {name}, or kubectl delete gj {name} and apply its manifest"

    def stop(self, name: str, seconds: float | None, say: Say) -> bool:
        """Set spec.suspend, and wait for its pods."""
        self._run(self._gangs.refuse_owned(name))
        return self._run(ending.stop_gangjob(self._gangs, self._pod_names, name, seconds, say))

    def delete(self, name: str, seconds: float | None, say: Say) -> bool:
        """Delete the GangJob, as kubectl does."""
        self._run(self._gangs.refuse_owned(name))
        return self._run(ending.delete_gangjob(self._gangs, name, seconds, say))

    def names(self) -> Sequence[str]:
        return [str(one["metadata"]["name"]) for one in self.documents(None)]

    def is_removed(self, name: str) -> bool:  # noqa: ARG002 - the port has it
        """A cluster keeps nothing of one."""
        return False

    def rerun(self, name: str, run_here: RunHere, say: Say) -> int:
        """Delete the GangJob, and create it again."""
        del run_here
        self._run(self._gangs.refuse_owned(name))
        self._run(ending.rerun_gangjob(self._gangs, name, say))
        return ExitCode.OK

    def logs_hint(self, name: str) -> str:
        """Command that prints the logs."""
        return f"gangctl logs {name} MEMBER"

    def logs(self, job: GangJob, options: LogOptions, sink: Sink) -> None:
        """Read the logs from the kubelets."""
        self._run(self._logs(job, options, sink))

    def inject(self, job: GangJob, member: str, fault: InjectedFault) -> Sequence[str]:
        """Run a program in the member's container."""
        return self._run(self._inject(job, member, fault))

    def ask(self, question: Callable[[Client, str], Coroutine[Any, Any, _T]]) -> _T:
        """The answer to a question, which is asked with the client and the selected namespace."""
        return self._run(question(self._client, self._gangs.namespace))

    def inject_controller(self, fault: InjectedFault, lease: str) -> None:
        """Delete its pod without a grace period."""
        if fault.signal is None or fault.signal[0] != "SIGKILL":
            raise UserError("on a cluster, only --kill-controller works for the controller: it deletes its pod")
        self._run(kill_leader(self._client, lease))

    def show_page(self, access: PageAccess, serve: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
        """The leader has it; a connection is forwarded to its pod."""
        self._run(serve(LeadingController(self._client, access)))

    def _run(self, call: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._runner.run(call)
        except ExceptionGroup as group:
            first: Exception = group
            while isinstance(first, ExceptionGroup):
                first = first.exceptions[0]
            if isinstance(first, (UserError, ClusterError, BrokenPipeError)):
                raise first from None
            raise

    async def _views(self, name: str | None) -> list[GangView]:
        now = time.time()
        if name is not None:
            job = await self._gangs.read(name)
            return [view_from_pods(job, await self._pods(job), now)]
        found = await self._gangs.all()
        for one in found:
            if one.job is None:
                print_err(unreadable_text(one.name, one.unreadable))
        return [_summary(one.job, now) for one in found if one.job is not None]

    async def _watch(self, name: str | None, show: Callable[[Sequence[GangView]], None]) -> NoReturn:
        show(await self._views(name))  # an error at the start is reported; later ones are retried
        changed = asyncio.Event()
        gangs = Reflector(self._client, self._gangs.folder, GANGS, lambda *_: changed.set())
        selector = f"{LABEL_GANG}={name}"
        pods = Reflector(self._client, self._pods_folder, PODS, lambda *_: changed.set(), selector=selector)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(gangs.run())
            await gangs.listed.wait()
            if name is not None:
                tasks.create_task(pods.run())
                await pods.listed.wait()
            while True:
                changed.clear()
                found = sorted(gangs.items.values(), key=lambda one: (one.namespace, one.name))
                jobs = [one.job for one in found if one.job is not None and name in {None, one.name}]
                now = time.time()
                seen = tuple(pods.items.values())
                show([_summary(job, now) if name is None else view_from_pods(job, seen, now) for job in jobs])
                await asyncio.sleep(_REDRAW_SECONDS)  # the redraw rate; nothing waits for it
                try:
                    async with asyncio.timeout(_AGE_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    continue

    async def _wait(self, name: str, over: Callable[[GangJob], bool], seconds: float) -> GangJob:
        job = await self._gangs.read(name)
        changed = asyncio.Event()
        reflector = Reflector(self._client, self._gangs.folder, GANGS, lambda *_: changed.set())
        keeping = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(seconds):
                while not over(job):
                    await changed.wait()
                    changed.clear()
                    job = next((one.job for one in reflector.items.values() if one.name == name and one.job), job)
        except TimeoutError:
            return job
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
        return job

    async def _pods(self, job: GangJob) -> tuple[KubePod, ...]:
        query = {"labelSelector": f"{LABEL_UID}={job.metadata.uid}"}
        return (await list_all(self._client, self._pods_folder, PODS, query)).items

    async def _pod_names(self, job: GangJob) -> list[str]:
        return [one.pod.name for one in await self._pods(job)]

    async def _logs(self, job: GangJob, options: LogOptions, sink: Sink) -> None:
        current = newest(await self._pods(job))
        pods = {
            member: (current[member].pod.name, worker_container(job, member))
            for member in options.members
            if member in current
        }
        if not pods:
            raise UserError(f"there is no log: no pod of {', '.join(options.members[:8])} exists")
        await logs.stream_pods(self._client, self._gangs.namespace, options, pods, sink)

    async def _inject(self, job: GangJob, member: str, fault: InjectedFault) -> list[str]:
        current = newest(one for one in await self._pods(job) if not one.pod.terminated)
        if member not in current:
            raise UserError(
                f"no pod of member {member} runs; members with running pods: {', '.join(current) or 'none'}"
            )
        return await inject_in_pod(self._client, current[member], worker_container(job, member), fault)

    @property
    def _pods_folder(self) -> str:
        return paths.pods(self._gangs.namespace)


def _summary(job: GangJob, now: float) -> GangView:
    metadata = job.metadata
    seen = Snapshot(
        name=metadata.name, uid=metadata.uid, generation=metadata.generation, time=now, status=job.status, members=()
    )
    return GangView(job, seen, (), live=True)


def newest(pods: Iterable[KubePod]) -> dict[str, KubePod]:
    """Member -> its newest pod, by incarnation."""
    return {one.pod.member: one for one in sorted(pods, key=lambda one: one.pod.incarnation)}


def worker_container(job: GangJob, member: str) -> str:
    """Name of the container of the member's worker; empty if the role no longer exists."""
    role, _ = parse_member_name(member)
    return next((one.worker.name for one in job.spec.roles if one.name == role), "")


def view_from_pods(job: GangJob, pods: Iterable[KubePod], now: float) -> GangView:
    """A view of the gang, with the status of its pods instead of what supervisors report to the controller.

    ``now``: seconds since the epoch.
    """
    ours = {one.pod.name: one for one in pods if one.gang == job.metadata.uid}
    seen = snapshot(now, job, Observed(pods=tuple(one.pod for one in ours.values())))
    members = tuple(
        changed(member, pod_status=_status(ours[member.pod])) if member.pod in ours else member
        for member in seen.members
    )
    nodes = {one.pod.member: one.pod.node for one in newest(ours.values()).values()}
    return GangView(job, changed(seen, status=job.status, members=members), (), live=True, nodes=nodes)


def _status(found: KubePod) -> str:
    """The status that `kubectl get pods` shows."""
    if found.pod.deleting:
        return "Terminating"
    if found.pod.started_at is not None:
        return found.phase
    return found.pod.reason or found.phase
