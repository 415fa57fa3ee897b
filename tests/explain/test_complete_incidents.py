"""When an incident is complete, so that its trace can be exported as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, PhaseMilliseconds
from gangctl.api.status import FirstStep, GangPhase, ProgressStatus
from gangctl.core.lifecycle.decide import decide
from gangctl.story.spans import QUIET_SECONDS, STORED_SECONDS, Span, incident_spans, is_complete
from tests.core.arbitrary import jobs, worlds
from tests.core.scenario import sentence
from tests.core.world import START, World
from tests.effort import examples
from tests.explain.incidents import CALM, LINKED, STEPPED, TRACE, incident, job, named


@CALM
@given(jobs())
def test_every_span_of_a_complete_incident_has_an_end(made: GangJob) -> None:
    for one in made.status.incidents:
        if is_complete(made, one, START + 10_000):
            assert all(span.end is not None for span in incident_spans(made, one))


@CALM
@given(st.data())
def test_a_decision_does_not_change_a_complete_incident(data: st.DataObject) -> None:
    made = data.draw(jobs())
    after = decide(START, made, data.draw(worlds(made))).status
    complete = [one for one in made.status.incidents if is_complete(made, one, START) and _is_whole(made, one)]
    if after is not None:
        later = {one.attempt: one for one in after.incidents}
        for one in complete:
            again = later.get(one.attempt, one)
            assert again == one
            assert incident_spans(made.model_copy(update={"status": after}), again) == incident_spans(made, one)


def _is_whole(made: GangJob, one: Incident) -> bool:
    """Whether a controller could have stored it: the newest alone is changed, and each attempt is there once."""
    attempts = [other.attempt for other in made.status.incidents]
    in_order = attempts == sorted(set(attempts), reverse=True) and max(attempts) <= made.status.attempt
    stepped = one.milliseconds.first_step is not None
    return in_order and one.settled and one.outcome == "Restarted" and stepped


def test_an_open_incident_of_an_earlier_attempt_has_an_end() -> None:
    """No controller stores that; a status that a person has edited may have it."""
    made = job(incident(outcome="Open", milliseconds=PhaseMilliseconds()))
    made = made.model_copy(update={"status": made.status.model_copy(update={"attempt": made.status.attempt + 1})})
    one = made.status.incidents[0]
    assert is_complete(made, one, START + 10_000)
    assert incident_spans(made, one)[0].end == one.time


def test_a_restart_is_complete_after_the_evidence_window() -> None:
    made = incident()
    window = job().spec.recovery.evidence_window_seconds
    assert not is_complete(job(made), made, START + 4 + window)
    assert is_complete(job(made), made, START + 4.1 + window)


def test_a_restart_of_a_gang_that_reports_steps_is_not_complete_without_one() -> None:
    made = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    assert not is_complete(job(made, first_step=STEPPED), made, START + 10**6)
    assert incident_spans(job(made, first_step=STEPPED), made)[0].end is None


def test_a_restart_of_a_gang_without_steps_ends_when_the_last_worker_was_started() -> None:
    made = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    assert incident_spans(job(made), made)[0].end == START + 5
    assert not is_complete(job(made), made, START + 3 + QUIET_SECONDS)
    assert not is_complete(job(made), made, START + 3 + QUIET_SECONDS + STORED_SECONDS)
    assert is_complete(job(made), made, START + 4 + QUIET_SECONDS + STORED_SECONDS)


def test_a_late_first_step_does_not_change_a_complete_trace() -> None:
    took = PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000)
    made = incident(milliseconds=took)
    whole = incident_spans(job(made), made)
    late = FirstStep(attempt=2, step=1, time=START + 1000)
    assert (
        incident_spans(job(made, first_step=late, progress=ProgressStatus(attempt=2, step=1, time=late.time)), made)
        == whole
    )
    stepped = incident(milliseconds=took.model_copy(update={"first_step": 995_000}))
    assert incident_spans(job(stepped), stepped) == whole
    again = incident(attempt=3, begins=START + 2000, trace_id=LINKED, lost_steps=5)
    assert incident_spans(job(again, stepped, first_step=late), stepped) == whole


def test_steps_that_are_first_reported_after_the_next_incident_do_not_change_earlier_traces() -> None:
    first = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    second = incident(attempt=3, begins=START + 30, trace_id=LINKED, linked_trace_id=TRACE)
    silent = second.model_copy(update={"milliseconds": second.milliseconds.model_copy(update={"first_step": None})})
    before = job(silent, first)
    assert is_complete(before, first, START + 60)
    step = FirstStep(attempt=3, step=1, time=START + 40)
    newest = ProgressStatus(attempt=3, step=1, time=START + 40)
    assert incident_spans(job(second, first, first_step=step, progress=newest), first) == incident_spans(before, first)


def test_a_late_fault_without_a_step_in_between_is_recognised_by_its_link() -> None:
    first = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    second = incident(attempt=3, begins=START + 600, trace_id=LINKED, linked_trace_id=TRACE)
    assert named(incident_spans(job(second, first), first))["first_step"].end == START + 600


GO_ON = ("every pod starts", "everyone connects again", "everyone is Ready", "everyone runs")


LIFE = (
    *((*some, *GO_ON, "1 s pass") for some in (["worker-0 ends with 3"], ["the pod of worker-1 vanishes"])),
    ("worker-0 ends with 3", "everyone is Ready"),
    ("worker-0 reports step 150", "worker-1 reports step 150", "40 s pass"),
    ("40 s pass",),
    ("400 s pass",),
    (
        "suspend becomes true",
        "the pod of worker-0 is removed",
        "the pod of worker-1 is removed",
        "40 s pass",
        "suspend becomes false",
        *GO_ON,
    ),
    ("a new controller starts",),
)


@examples(100)
@given(st.lists(st.sampled_from(LIFE), min_size=15, max_size=30))
def test_a_complete_trace_stays_the_same_over_the_life_of_a_gang(walk: list[tuple[str, ...]]) -> None:
    world = World()
    world.submit("{roles: [{name: worker, replicas: 2}], recovery: {budget: {type: Windowed, maxRestarts: 50}}}")
    complete: dict[int, tuple[Span, ...]] = {}
    latest = world.now
    for line in ["decide", *GO_ON, *(line for some in walk for line in some)]:
        try:
            sentence(world, line)
        except (KeyError, ValueError):
            continue  # Whom it speaks of isn't there.
        world.decide()
        world.decide()
        latest = max(latest, world.now)
        for one in world.job.status.incidents:
            found = incident_spans(world.job, one)
            if one.attempt in complete:
                assert found == complete[one.attempt]
            elif is_complete(world.job, one, world.now) and world.now == latest:
                complete[one.attempt] = found


@pytest.mark.parametrize("phase", [GangPhase.SUSPENDED, GangPhase.SUCCEEDED, GangPhase.FAILED, GangPhase.HELD])
def test_a_restart_is_complete_when_its_attempt_has_ended(phase: GangPhase) -> None:
    made = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    ended = job(made, phase=phase, first_step=STEPPED)
    assert is_complete(ended, made, START + 60)
    assert incident_spans(ended, made)[0].end == START + 5
