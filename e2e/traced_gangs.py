"""Gangs whose restarts are traced: what a test did to them, what their workers noted, and what every trace must be."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.gangs import Gang, trainers
from e2e.jaeger import Jaeger, Trace
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
TIMED_SECONDS = 90.0
"""The controller writes the times of a restart with its next summary, every 30 s; then it sends the trace."""
CLOSE = 5.0
"""Seconds by which what the test sees may differ from the trace: a busy machine stalls for seconds. A time of another
attempt, or in another unit, differs by more."""
SAVED, BEYOND = 2, 3
"""The step of the trainers' first checkpoint, and how many steps they make at least beyond it before their fault."""
EXACT = 0.0021
"""Seconds: the status has durations in milliseconds."""
PHASES = {
    "detect": "detect",
    "stop": "stop",
    "replace": "replace",
    "back_off": "backOff",
    "barrier": "barrier",
    "start": "start",
    "first_step": "firstStep",
}
"""Name of a phase's span -> its field in the status."""
MEMBERS = {
    "member.stop": "stop",
    "member.replace": "replace",
    "member.start": "start",
    "member.launch": "first_step",
    "member.imports": "first_step",
    "member.rendezvous": "first_step",
    "member.checkpoint_load": "first_step",
    "member.first_step": "first_step",
}
"""Name of a member's span -> the phase that it is below."""


@dataclass
class TracedGang:
    """A gang, and when a test did what to it. Times are seconds since the epoch."""

    gang: Gang
    folder: Path
    uids: dict[str, str]
    nodes: dict[str, str]
    fault: float = 0.0
    """When the newest fault was injected."""

    def notes(self, member: str) -> list[dict[str, Any]]:
        """What the workers of a member noted."""
        file = self.folder / member
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def noted_at(self, member: str, what: str, attempt: int) -> float | None:
        """When a worker first noted this, by its own clock, which is the machine's."""
        return next(
            (one["time"] for one in self.notes(member) if (one["what"], one["attempt"]) == (what, attempt)), None
        )

    def last_step(self, attempt: int) -> int:
        """The highest step that any worker made, as none waits for the others; 0 if none."""
        notes = [one for member in self.uids for one in self.notes(member)]
        return max((one["step"] for one in notes if one["attempt"] == attempt), default=0)

    def until_noted(self, member: str, what: str, attempt: int) -> float:
        """Wait until a worker has noted this; when it did."""
        return until(f"{member} notes {what}", lambda: self.noted_at(member, what, attempt))

    def kill(self, member: str) -> None:
        """SIGKILL the worker of a member."""
        self.signal(member, signal.SIGKILL)

    def signal(self, member: str, number: signal.Signals) -> None:
        """Send a signal to the worker of a member: this is the fault."""
        process = process_faults.worker(self.uids[member])
        self.fault = time.time()
        process.send(number)

    def incident(self, attempt: int) -> dict[str, Any]:
        """The incident that led to this attempt."""
        return next(one for one in self.gang.status["incidents"] if one["attempt"] == attempt)

    def first_step(self, attempt: int) -> float:
        """When the last member made its first step: until then the gang waits for it."""
        return max(self.until_noted(member, "step", attempt) for member in self.uids)

    def started(self, attempt: int) -> float:
        """When the last worker started."""
        return max(self.until_noted(member, "started", attempt) for member in self.uids)

    def until_timed(self, attempt: int) -> None:
        """Wait until the status has all times of the incident, so that nothing is added to them any more."""

        def holds(status: dict[str, Any]) -> bool:
            newest = status["incidents"][0]
            return newest["attempt"] == attempt and "firstStep" in newest["milliseconds"]

        self.gang.until(f"the first step of attempt {attempt} is in the status", holds, TIMED_SECONDS)


def traced(name: str, folder: Path, jaeger: Jaeger, replicas: int = 2, **spec: Any) -> dict[str, Any]:
    """The GangJob of such a gang."""
    made = trainers(name, replicas=replicas, directory=folder, traces=jaeger.endpoint, **spec)
    made["spec"]["recovery"] |= {"replaceAfter": 100, "lostPodGraceSeconds": 1}
    return made


def training(gang: Gang, folder: Path) -> TracedGang:
    """Wait until the gang trains, has saved a checkpoint, and has made some steps since."""
    gang.runs(1)
    nodes = {member: pod["spec"]["nodeName"] for member, pod in gang.pods().items()}
    found = TracedGang(gang, folder, gang.uids(), nodes)
    until("steps beyond the checkpoint", lambda: found.last_step(1) >= SAVED + BEYOND)
    until("the checkpoint is whole", (folder / f"step-{SAVED}" / "DONE").exists)
    return found


def assert_sound(trace: Trace, incident: dict[str, Any], first_step: str = "first_step") -> None:
    """What holds of every trace: one tree, phases one after the other as the status has them, children inside."""
    shown = str(trace)
    assert trace.doubles == (), shown
    root = trace.root
    assert root is not None
    assert (root.parent, root.service, root.span_id) == ("", "gangctl", trace.trace_id[:16]), shown
    ours = {span.span_id: span for span in trace.spans if span.service == "gangctl"}
    for span in ours.values():
        if span is root:
            continue
        parent = ours[span.parent]
        assert parent.begin - EXACT <= span.begin <= span.end <= parent.end + EXACT, f"{span} in {parent}"
        assert span.name in (PHASES if parent is root else MEMBERS), shown
        assert parent is root or MEMBERS[span.name] == parent.name, shown
    phases = [span for name in PHASES for span in trace.named(name)]
    assert len(phases) == len({span.name for span in phases}), shown
    for before, after in pairwise(phases):
        assert after.begin == pytest.approx(before.end, abs=EXACT), shown
    assert phases[0].begin == pytest.approx(root.begin, abs=EXACT), shown
    assert sum(span.seconds for span in phases) == pytest.approx(root.seconds, abs=EXACT * len(phases)), shown
    for span in phases:
        stored = incident["milliseconds"].get(PHASES[span.name])
        assert stored is None or span.seconds == pytest.approx(stored / 1000, abs=EXACT), shown
    assert first_step in {span.name for span in phases}, shown
