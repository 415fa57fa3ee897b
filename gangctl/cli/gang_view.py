"""What can be seen of a gang now: the controller's snapshot, or what the files say while no controller answers.

The controller is asked at its live endpoint; processes are known from the files of the pods in either case.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob
from gangctl.api.snapshot import Endpoint, Snapshot
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.pod_record import PodRecord, projection
from gangctl.core.facts.world import Observed
from gangctl.core.record.snapshot import snapshot

TIMEOUT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class GangView:
    """One look at a gang."""

    job: GangJob
    """As it is stored."""
    snapshot: Snapshot
    pods: tuple[PodRecord, ...]
    """Those that are not forgotten yet, by name."""
    live: bool
    """The snapshot is the controller's; else it is made of the files, which know no steps."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Member -> where its pod is; empty where there is only one machine."""

    def processes(self) -> list[dict[str, Any]]:
        """Every member with its pod and process ids, for programs; a start time is in clock ticks since the boot."""
        newest = {pod.member: pod for pod in sorted(self.pods, key=lambda pod: pod.incarnation)}
        found: list[dict[str, Any]] = []
        for member in self.snapshot.members:
            entry = member.model_dump(mode="json", by_alias=True, exclude_none=True)
            pod = newest.get(member.member)
            if pod is not None:
                entry |= {"pod": pod.name, "podUID": pod.uid, "incarnation": pod.incarnation, "restarts": pod.restarts}
                for name, process in (("sidecar", pod.sidecar), ("supervisor", pod.supervisor)):
                    if process is not None:
                        entry[name] = {"pid": process.pid, "startTime": process.start_time}
            found.append(entry)
        return found


def view_gang(state: StateDirectory, store: GangStore, now: float) -> GangView:
    """GangView once; ``now`` in seconds since the epoch. It blocks for a moment.

    Raises:
        ClusterError: the gang's own file can't be read.
    """
    job = store.read()
    try:
        pods = pod_record.load_all(store.folder)
    except (ClusterError, OSError):
        pods = ()  # they come and go while we look
    told = live_snapshot(state, job.metadata.name)
    if told is not None and told.uid == job.metadata.uid:
        return GangView(job, told, pods, live=True)
    observed = Observed(pods=tuple(projection(pod) for pod in pods if pod.gang == job.metadata.uid))
    return GangView(job, _as_stored(snapshot(now, job, observed), job), pods, live=False)


def live_snapshot(state: StateDirectory, name: str) -> Snapshot | None:
    """The controller's snapshot; None if it doesn't answer."""
    try:
        endpoint = Endpoint.model_validate_json(state.live.read_bytes())
        address = urlsplit(endpoint.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_SECONDS)
    except (OSError, ValueError):
        return None
    try:
        connection.request("GET", address.path + name, headers={"Authorization": f"Bearer {endpoint.token}"})
        response = connection.getresponse()
        content = response.read()
        return Snapshot.model_validate_json(content) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValidationError):
        return None
    finally:
        connection.close()


def _as_stored(found: Snapshot, job: GangJob) -> Snapshot:
    """Without a controller nobody is connected as far as we know, which is no reason to say so of the status."""
    return changed(found, status=job.status)
