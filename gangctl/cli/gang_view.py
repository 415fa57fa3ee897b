"""A view of a gang at one moment: the controller's snapshot or, if no controller answers, what is stored in files.

The snapshot comes from the controller's live endpoint. Processes always come from the files of the pods.
"""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.status import ConditionType, Endpoint, Snapshot, Status
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.pod_record import PodRecord, projection
from gangctl.core.facts.world import Observed
from gangctl.core.record.snapshot import snapshot
from gangctl.story.words import STOPPED, interrupted

TIMEOUT_SECONDS: Final = 1.0
_OF_PROCESSES: Final = {ConditionType.READY, ConditionType.PROGRESSING, ConditionType.RESTARTING}
"""Conditions that were stored last and don't hold when no process is left."""


@dataclass(frozen=True, slots=True)
class GangView:
    """A view of one gang at one moment."""

    job: GangJob
    """The gang as it is stored."""
    snapshot: Snapshot
    pods: tuple[PodRecord, ...]
    """Stored pods, sorted by name."""
    live: bool
    """True if the snapshot is the controller's. If not, it is made from files, which have no steps."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Member -> node of its pod; empty on a single machine."""
    stopped: str = ""
    """Why its processes were ended without a controller, of which the status doesn't know; empty if they weren't."""

    def status(self) -> dict[str, Any]:
        """The status for programs; of a gang that is stopped, with the phase and reason that the text shows."""
        status = self.snapshot.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not self.stopped:
            return status
        status.pop("ready", None)
        return {**status, "phase": STOPPED, "message": self.stopped}

    def processes(self) -> list[dict[str, Any]]:
        """All members with their pods and process IDs, for programs. Start times are in clock ticks since boot."""
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
    """View a local gang; ``now`` in seconds since the epoch. This is blocking."""
    job = store.read()
    try:
        pods = pod_record.load_all(store.folder)
    except (ClusterError, OSError):
        pods = ()  # pods come and go meanwhile
    current = live_snapshot(state, job.metadata.name)
    if current is not None and current.uid == job.metadata.uid:
        return GangView(job, current, pods, live=True)
    observed = Observed(pods=tuple(projection(pod) for pod in pods if pod.gang == job.metadata.uid))
    return GangView(job, _as_stored(snapshot(now, job, observed), job.status), pods, live=False)


def view_removed(store: GangStore, at: float) -> GangView:
    """View a gang that was removed at this time, in seconds since the epoch, as it was stored last."""
    job = store.read_removed()
    found = GangView(job, _as_stored(snapshot(at, job, Observed()), job.status), (), live=False)
    return as_stopped(found, "; ".join(interrupted(job, at)))


def as_stopped(found: GangView, why: str) -> GangView:
    """The view of a gang of which no process is left, with the reason."""
    status = found.snapshot.status
    conditions = tuple(one for one in status.conditions if one.type not in _OF_PROCESSES)
    return replace(found, snapshot=_as_stored(found.snapshot, changed(status, conditions=conditions)), stopped=why)


def live_snapshot(state: StateDirectory, name: str) -> Snapshot | None:
    """The controller's snapshot of a gang; None if the controller does not answer."""
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


def _as_stored(found: Snapshot, status: Status) -> Snapshot:
    """The snapshot with the stored status: without a controller it is unknown which members are connected."""
    return changed(found, status=status)
