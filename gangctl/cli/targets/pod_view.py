"""The view of a gang on a cluster, made from its stored status and its pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob
from gangctl.api.names import parse_member_name
from gangctl.cli.gang_view import GangView
from gangctl.cluster.kube.projections import KubePod
from gangctl.core.facts.world import Observed
from gangctl.core.record.snapshot import snapshot


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
