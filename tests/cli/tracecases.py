"""Incidents as a status tells them, for the golden files of `gangctl trace`."""

from __future__ import annotations

from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from tests.cli.here import manifest

BEGAN = 1_769_860_800.0
"""2026-01-31 12:00:00 UTC."""
NOW = BEGAN + 300
NASTY = "[red]x[/red]\x1b[2J\r\n\u202eevil\x9b1m"


def cause(**more: Any) -> dict[str, Any]:
    said = "ended by SIGKILL in attempt 1"
    found = {"reason": "Signal", "member": "worker-1", "rank": 1, "signal": "SIGKILL", "message": said, "time": BEGAN}
    return found | more


def member(name: str, part: str, phase: str, begin: int, took: int, **more: Any) -> dict[str, Any]:
    return {
        "member": name,
        "part": part,
        "phase": phase,
        "beginMilliseconds": begin,
        "milliseconds": took,
        "node": "node-7",
    } | more


def incident(attempt: int = 2, **more: Any) -> dict[str, Any]:
    """A killed worker; everything went well."""
    return {
        "attempt": attempt,
        "time": BEGAN,
        "cause": cause(),
        "charged": True,
        "settled": True,
        "settledTime": BEGAN + 0.119,
        "outcome": "Restarted",
        "milliseconds": {"detect": 0, "stop": 111, "barrier": 8, "start": 44, "firstStep": 2297},
        "restoredStep": 50,
        "lostSteps": 5,
        "lostSeconds": 1.25,
        "members": [
            member("worker-1", "Cause", "Stop", 0, 3),
            member("worker-3", "Slowest", "Stop", 0, 111, node="node-9"),
            member("worker-0", "Slowest", "Start", 119, 44),
            member("worker-2", "Slowest", "CheckpointLoad", 900, 700),
            member("worker-2", "Slowest", "FirstStep", 163, 2297),
        ],
        "traceID": f"{attempt:x}" * 32,
    } | more


def job(*incidents: dict[str, Any], **more: Any) -> GangJob:
    """A gang with these incidents, newest first."""
    attempt = max((one["attempt"] for one in incidents), default=1)
    found = {"phase": "Running", "attempt": attempt, "progress": {"attempt": attempt, "step": 60, "time": BEGAN + 9}}
    made = manifest()
    made["metadata"] = {"name": "demo", "namespace": "research", "uid": "u"}
    return GangJob.model_validate({**made, "status": {**found, "incidents": list(incidents), **more}})


def lost_node() -> GangJob:
    """A node is lost and its pod comes again elsewhere, over 15 minutes."""
    new = {"node": "node-11", "incarnation": 1}
    lost = cause(
        reason="NodeLost",
        member="worker-5",
        rank=5,
        signal=None,
        node="node-7",
        device="GPU-ab12",
        rule="lost-gpu",
        message="its node node-7 is not ready, its pod is deleted",
    )
    times = {"detect": 40_000, "stop": 1_240, "replace": 842_000, "barrier": 0, "start": 210, "firstStep": 19_500}
    listed = [
        member("worker-5", "Cause", "Replace", 41_240, 842_000, **new, device="GPU-ab12"),
        member("worker-3", "Slowest", "Stop", 40_000, 1_240, node="node-3"),
        member("worker-2", "Slowest", "Stop", 40_000, 1_100, node="node-2"),
        member("worker-5", "Slowest", "Start", 883_240, 210, **new),
        member("worker-5", "Slowest", "FirstStep", 883_450, 19_500, **new),
    ]
    cost = {"restoredStep": 1200, "lostSteps": 17, "lostSeconds": 214.0}
    settled = {"cause": lost, "level": "Pod", "charged": False, "settledTime": BEGAN + 843.24}
    return job(incident(4, milliseconds=times, members=listed, **cost, **settled))


def is_open() -> GangJob:
    """The first step hasn't come for five minutes."""
    times = {"detect": 0, "stop": 111, "barrier": 8, "start": 44}
    return job(incident(milliseconds=times, members=incident()["members"][:3]))


def gathers() -> GangJob:
    """Write 1 was made, nothing else is known."""
    found = incident(
        outcome="Open",
        settled=False,
        settledTime=None,
        charged=False,
        milliseconds={"detect": 120},
        members=[],
        restoredStep=None,
        lostSteps=None,
        lostSeconds=None,
    )
    return job({key: value for key, value in found.items() if value is not None}, phase="Gathering")


def linked() -> GangJob:
    """A fault before the first step of the attempt that the fault before led to."""
    again = cause(message="exit code 75", reason="ExitCode", exitCode=75, signal=None, rule="asked", tied=("worker-2",))
    before = incident(2, milliseconds={"detect": 0, "stop": 111, "barrier": 8, "start": 44}, members=[])
    return job(incident(3, cause=again, time=BEGAN + 2, linkedTraceID="2" * 32, lostSteps=0), before)


def unknown() -> GangJob:
    """A gang that reports no steps and has no checkpoints."""
    times = {"detect": 0, "stop": 111, "barrier": 8, "start": 44}
    found = incident(milliseconds=times, members=incident()["members"][:3])
    known = {key: value for key, value in found.items() if key not in {"restoredStep", "lostSteps", "lostSeconds"}}
    made = manifest()
    made["metadata"] = {"name": "demo", "namespace": "research", "uid": "u"}
    made["status"] = {"phase": "Running", "attempt": 2, "incidents": [known]}
    return GangJob.model_validate(made)


def forked(**more: Any) -> GangJob:
    """Workers that were forked from a template, or executed instead."""
    return job(incident(warmStart={"forked": 4, "templateBytes": 200 << 20} | more))


def eight() -> GangJob:
    """As many members as an incident lists."""
    replaced = [
        member(f"worker-{at}", "Replaced", "Replace", 111, 700 * at, incarnation=2, node=f"node-{at}")
        for at in (1, 2, 3)
    ]
    listed = [
        member("launcher-0", "Cause", "Stop", 0, 0),
        *replaced,
        member("worker-1000", "Slowest", "Stop", 0, 111),
        member("worker-1000", "Slowest", "Start", 2300, 44),
        member("worker-9", "Slowest", "FirstStep", 2344, 2297),
        member("worker-8", "Slowest", "FirstStep", 2344, 2200),
    ]
    times = {"detect": 0, "stop": 111, "replace": 2100, "barrier": 89, "start": 44, "firstStep": 2297}
    return job(incident(cause=cause(member="launcher-0", rank=0), level="Pod", milliseconds=times, members=listed))


def hostile() -> GangJob:
    """Whatever others chose contains what a terminal or a markup would obey."""
    bad = cause(message=NASTY, node=NASTY, device=NASTY, rule=NASTY, member="世界\u202e")
    first = member("世界\u202e", "Cause", "Stop", 0, 3, node=NASTY, device=NASTY)
    made = job(incident(cause=bad, members=[first, member(NASTY, "Slowest", "FirstStep", 163, 9)]))
    return made.model_copy(update={"status": _unescaped(made.status)})


def _unescaped(status: Status) -> Status:
    """As no controller would store it: what is shown must not depend on that."""
    one = status.incidents[0]
    raw = dict.fromkeys(("message", "node", "device", "rule"), NASTY)
    first, second = one.members
    members = (first.model_copy(update={"node": NASTY, "device": NASTY}), second.model_copy(update={"member": NASTY}))
    bad = one.cause.model_copy(update={**raw, "member": "世界\u202e"})
    return status.model_copy(update={"incidents": (one.model_copy(update={"cause": bad, "members": members}),)})


def failed() -> GangJob:
    """The budget is used up."""
    return job(
        incident(outcome="Failed", milliseconds={"detect": 0, "stop": 111, "barrier": 0}, members=[], lostSteps=None),
        phase="Failed",
    )


def instant() -> GangJob:
    """Nothing took a whole millisecond."""
    times = {"detect": 0, "stop": 0, "barrier": 0, "start": 0, "firstStep": 0}
    return job(incident(milliseconds=times, members=[member("worker-1", "Cause", "Stop", 0, 0)], planned=True))


CASES = {
    "seldom": job(incident(lostSteps=0, lostStepsAtMost=9, lostSeconds=0.0)),
    "forked": forked(),
    "partly-forked": forked(forked=3, executed=1, member="worker-2", obstacle="the template was not ready in time"),
    "killed": job(incident()),
    "lost-node": lost_node(),
    "open": is_open(),
    "gathers": gathers(),
    "linked": linked(),
    "unknown-steps": unknown(),
    "eight-members": eight(),
    "hostile": hostile(),
    "failed": failed(),
    "instant": instant(),
}
"""Golden file -> the gang whose newest incident it shows."""
