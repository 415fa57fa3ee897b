"""Gangs whose timelines the tests draw. Times count from BEGAN."""

from __future__ import annotations

from typing import Any

from gangctl.api.gangjob import GangJob
from tests.cli.here import manifest
from tests.cli.tracecases import BEGAN, cause, incident, member

HOUR = 3600.0


def gang(
    *incidents: dict[str, Any], replicas: int = 4, spares: int = 0, created: float = BEGAN, **status: Any
) -> GangJob:
    """A gang with these incidents, newest first."""
    made = manifest(replicas=replicas)
    made["spec"]["roles"][0]["spares"] = spares
    made["metadata"] = {"name": "demo", "namespace": "research", "uid": "u", "creationTimestamp": created}
    attempt = max((one["attempt"] for one in incidents), default=1)
    found = {
        "phase": "Running",
        "attempt": attempt,
        "startedAttempt": attempt,
        "phaseTime": created,
        "startTime": created + 20,
        "accountedTime": created + 20,
        "incidents": list(incidents),
    }
    return GangJob.model_validate({**made, "status": {**found, **status}})


def fault(attempt: int, at: float, **more: Any) -> dict[str, Any]:
    """An incident as ``tracecases`` has it, so many seconds after BEGAN."""
    begins = BEGAN + at
    its = cause(time=begins, **more.pop("cause", {}))
    return incident(attempt, **{"time": begins, "settledTime": begins + 0.119, "cause": its, **more})


def lost_node(attempt: int, at: float, name: str = "worker-5") -> dict[str, Any]:
    """A node is lost; its pod comes again elsewhere after 14 minutes."""
    times = {"detect": 40_000, "stop": 1_240, "replace": 842_000, "barrier": 0, "start": 210, "firstStep": 19_500}
    listed = [
        member(name, "Cause", "Replace", 41_240, 842_000, incarnation=1),
        member("worker-3", "Slowest", "Stop", 40_000, 1_240),
        member(name, "Slowest", "Start", 883_240, 210, incarnation=1),
        member("worker-7", "Slowest", "FirstStep", 883_450, 19_500),
    ]
    said = {"reason": "NodeLost", "member": name, "signal": None, "message": "its node node-7 is not ready"}
    found = fault(attempt, at, cause=said, milliseconds=times, members=listed, restoredStep=1200, lostSteps=17)
    begins = BEGAN + at
    return found | {"time": begins + 40, "settledTime": begins + 883.24, "lostSeconds": 214.0, "level": "Pod"}


def night() -> GangJob:
    """Five restarts in nine hours, two of them after a lost node."""
    found = [
        fault(6, 7.9 * HOUR, restoredStep=4000, lostSteps=210, lostSeconds=1260.0),
        lost_node(5, 6.2 * HOUR, "worker-17"),
        fault(
            4, 5 * HOUR, restoredStep=2500, lostSteps=90, lostSeconds=540.0, cause={"member": "worker-17", "rank": 17}
        ),
        lost_node(3, 3.1 * HOUR),
        fault(2, 1 * HOUR, restoredStep=400, lostSteps=44, lostSeconds=264.0),
    ]
    spent = {"training": 29_000.0, "lostProgress": 2278.0, "startUp": 80.0, "recovery": 1815.0}
    restarts = {"counted": 3, "uncounted": 2}
    accounted = BEGAN + 9 * HOUR
    return gang(
        *found,
        replicas=64,
        spent=spent,
        restarts=restarts,
        accountedTime=accounted,
        firstStep={"attempt": 6, "step": 4001, "time": BEGAN + 7.9 * HOUR + 3},
    )
