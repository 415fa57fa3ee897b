"""Incidents of a stored gang, for tests of their spans."""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Cause, Incident, PhaseMilliseconds
from gangctl.api.status import FirstStep, GangPhase, Status
from gangctl.story.spans import Span
from tests.core.world import MANIFEST, START
from tests.effort import examples

CALM = examples(60)


TRACE = "c3" * 16


LINKED = "d4" * 16


def job(*incidents: Incident, **status: object) -> GangJob:
    """A gang with these incidents, newest first, which runs the attempt of the newest unless ``status`` differs."""
    newest = incidents[0].attempt if incidents else 1
    made = Status.model_validate({"phase": GangPhase.RUNNING, "attempt": newest, "incidents": incidents, **status})
    return GangJob.model_validate(MANIFEST).model_copy(update={"status": made})


def incident(attempt: int = 2, begins: float = START, **update: object) -> Incident:
    """An incident that led to a restart and its first step: detected after 0.5 s, 10 s in all."""
    took = PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000, first_step=5000)
    made = Incident(
        attempt=attempt,
        time=begins + 0.5,
        cause=Cause(reason="ExitCode", member="worker-1", exit_code=3, message="exit code 3", time=begins),
        outcome="Restarted",
        settled=True,
        settled_time=begins + 3,
        milliseconds=took,
        trace_id=TRACE,
    )
    return made.model_copy(update=update)


STEPPED = FirstStep(attempt=1, step=1, time=START - 100)


def named(found: tuple[Span, ...]) -> dict[str, Span]:
    """By name."""
    return {span.name: span for span in found}
