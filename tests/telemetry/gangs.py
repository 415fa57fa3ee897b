"""Stored gangs, for tests of the metrics."""

from __future__ import annotations

from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Cause, Incident, IncidentLevel, PhaseMilliseconds
from gangctl.api.status import Status

NOW = 1_800_000_000.0
TEMPLATE = {"spec": {"containers": [{"name": "worker", "command": ["train"]}]}}


def gang(uid: str = "u", namespace: str = "research", budget: dict[str, Any] | None = None, **status: Any) -> GangJob:
    """A gang with this status."""
    recovery = {} if budget is None else {"recovery": {"budget": budget}}
    spec = {"roles": [{"name": "worker", "replicas": 2, "template": TEMPLATE}], **recovery}
    metadata = {"name": f"g-{uid}", "namespace": namespace, "uid": uid}
    document = {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": metadata, "spec": spec}
    return GangJob.model_validate(document).model_copy(update={"status": Status(**status)})


def later(job: GangJob, **status: Any) -> GangJob:
    """The same gang with another status."""
    return job.model_copy(update={"status": job.status.model_copy(update=status)})


def at_fault(attempt: int, node: str, **more: Any) -> Incident:
    """A settled incident that was put down to a device on this node."""
    one = incident(attempt, settled=True, outcome="Restarted", level=IncidentLevel.POD, **more)
    return one.model_copy(update={"cause": one.cause.model_copy(update={"reason": "DeviceLost", "node": node})})


def incident(attempt: int, reason: str = "ExitCode", **more: Any) -> Incident:
    """An incident that has just begun."""
    cause = Cause(reason=reason, time=NOW - 1, member="worker-1")
    times = more.pop("milliseconds", {"detect": 1000})
    trace = f"{attempt:032x}"
    return Incident(
        attempt=attempt, time=NOW, cause=cause, trace_id=trace, milliseconds=PhaseMilliseconds(**times), **more
    )
