"""Containers beside the worker: in each pod of the simulation some have failed, and an init container was retried.

The rule: they are the user's matter, so no controller may see anything because of them. The real projection reads each
pod with and without them, and nothing may differ: else a healthy gang could be restarted for it (invariant 9).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from gangctl.api.names import ANNOTATION_WORKER, SIDECAR
from gangctl.cluster.kube.projections import PODS
from gangctl.core.facts.world import Pod
from tests.cluster.kube import objects
from tests.simulation.violations import require

SHOWN: Final = ("started_at", "ended_at", "ended_reason", "restarts", "start_failure", "last_words", "terminated")
"""What a pod's containers are read for."""


def check(pod: Pod) -> None:
    """The cluster shows the pod to a controller."""
    if pod.started_at is not None:
        _check(pod.started_at)


@lru_cache(4096)
def _check(at: float) -> None:
    alone, beside = _read(at, own=True), _read(at, own=False)
    differs = {name: getattr(beside, name) for name in SHOWN if getattr(beside, name) != getattr(alone, name)}
    require(not differs, 9, f"a container beside the worker changes what is seen of its pod: {differs}")


def _read(at: float, *, own: bool) -> Pod:
    """What the projection makes of a pod that started then: with gangctl's containers alone, or the user's as well."""
    worker, sidecar = (_status(name, running={"startedAt": _time(at)}) for name in ("worker", SIDECAR))
    killed = {"exitCode": 137, "reason": "OOMKilled", "startedAt": _time(at), "finishedAt": _time(at + 1)}
    failed = {"exitCode": 1, "reason": "Error", "startedAt": _time(at), "finishedAt": _time(at + 2)}
    users = [_status("once", terminated=failed)]
    users.append({**_status("log", waiting={"reason": "CrashLoopBackOff"}), "lastState": {"terminated": killed}})
    fetch = {**_status("fetch", terminated={**failed, "exitCode": 0}), "restartCount": 9}
    spec = {
        "initContainers": [{"name": SIDECAR, "restartPolicy": "Always"}, *([] if own else [{"name": "fetch"}])],
        "containers": [{"name": "worker"}, *([] if own else [{"name": "once"}, {"name": "log"}])],
    }
    raw = objects.pod(spec=spec)
    raw["metadata"]["annotations"] = {ANNOTATION_WORKER: "worker"}
    raw["status"] = {
        "phase": "Running",
        "initContainerStatuses": [sidecar, *([] if own else [fetch])],
        "containerStatuses": [worker, *([] if own else users)],
    }
    found = PODS.item(json.dumps(raw).encode())
    assert found is not None
    return found.pod


def _status(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "started": "running" in state, "state": state}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
