"""Gangs whose timelines the tests draw. Times count from BEGAN."""

from __future__ import annotations

from typing import Any

from gangctl.api.gangjob import GangJob
from tests.cli.here import manifest
from tests.cli.tracecases import BEGAN, cause, hostile, incident, member

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


def is_open() -> GangJob:
    """A worker of the second attempt still stops."""
    now = fault(2, 100, outcome="Open", settled=False, settledTime=None, milliseconds={"detect": 30}, members=[])
    return gang(now, phase="Gathering", phaseTime=BEGAN + 100)


def held() -> GangJob:
    """The budget is used up, and the pods stay."""
    ends = {"stop": 1000, "barrier": 0}
    end = fault(2, 100, outcome="Held", milliseconds=ends, members=[], restoredStep=None, lostSteps=None)
    return gang(end, phase="Held", phaseTime=BEGAN + 100.119)


def suspended() -> GangJob:
    """Suspended after a restart."""
    first = {"attempt": 2, "step": 1, "time": BEGAN + 102}
    return gang(fault(2, 100), firstStep=first, phase="Suspended", startTime=None, phaseTime=BEGAN + 160)


def resumed() -> GangJob:
    """Runs again since it was suspended, since when is unknown."""
    ledger = [{"time": BEGAN + 200, "attempt": 3, "charged": False}]
    return gang(fault(2, 100), resumedAttempt=3, startTime=BEGAN + 220, attempt=3, startedAttempt=3, ledger=ledger)


def thousands() -> GangJob:
    """10,000 members, and as many incidents as a status keeps."""
    kept = [lost_node(at, HOUR * at, f"worker-{at * 700}") for at in range(11, 1, -1)]
    return gang(*kept, replicas=10_000)


CASES = {
    "ordinary": (gang(fault(2, 100)), 200.0),
    "none": (gang(firstStep={"attempt": 1, "step": 1, "time": BEGAN + 32}), 100.0),
    "night": (night(), 9 * HOUR),
    "open": (is_open(), 130.0),
    "held": (held(), 200.0),
    "suspended": (suspended(), 240.0),
    "resumed": (resumed(), 300.0),
    "thousands": (thousands(), 20 * HOUR),
    "hostile": (hostile(), 300.0),
    "new": (gang(phase="", attempt=0, startedAttempt=0, startTime=None, phaseTime=0.0), 7.0),
}
"""Golden file -> the gang, and the seconds from BEGAN to the look."""
