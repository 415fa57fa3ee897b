"""Spans: whatever is stored, they are a tree in which everything is in its place, and the same for everybody."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Cause, GangPhase, Incident, IncidentMember, PhaseMilliseconds, ProgressStatus, Status
from gangctl.core.facts.trace_context import trace_id, trace_parent
from gangctl.core.lifecycle.decide import decide
from gangctl.telemetry.spans import QUIET_SECONDS, STORED_SECONDS, Span, incident_spans, is_complete
from tests.core.arbitrary import jobs, worlds
from tests.core.scenario import sentence
from tests.core.world import MANIFEST, START, World

CALM = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
TRACE = "c3" * 16
LINKED = "d4" * 16


def job(*incidents: Incident, **status: object) -> GangJob:
    """A gang with these incidents, newest first, which runs the newest's attempt if nothing else is said."""
    newest = incidents[0].attempt if incidents else 1
    made = Status.model_validate({"phase": GangPhase.RUNNING, "attempt": newest, "incidents": incidents, **status})
    return GangJob.model_validate(MANIFEST).model_copy(update={"status": made})


def incident(attempt: int = 2, begins: float = START, **update: object) -> Incident:
    """One that led to a restart and came to its first step: detected after 0.5 s, 10 s in all."""
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


STEPPED = ProgressStatus(attempt=1, step=1, time=START - 100)


def named(found: tuple[Span, ...]) -> dict[str, Span]:
    """By name."""
    return {span.name: span for span in found}


@CALM
@given(jobs())
def test_whatever_is_stored_the_spans_are_a_tree_and_everything_lies_within_its_parent(made: GangJob) -> None:
    for one in made.status.incidents:
        found = incident_spans(made, one)
        root, by_id = found[0], {span.span_id: span for span in found}
        assert len(by_id) == len(found), "an id twice"
        assert (root.parent_id, root.span_id) == ("", root.trace_id[:16])
        seen: list[Span] = []
        for span in found:
            assert re.fullmatch("[0-9a-f]{32}", span.trace_id)
            assert span.trace_id == root.trace_id
            assert re.fullmatch("[0-9a-f]{16}", span.span_id)
            assert span.end is None or span.end >= span.begin
            if span is not root:
                parent = by_id[span.parent_id]
                assert parent in seen, "a child before its parent"
                assert parent.begin <= span.begin
                assert parent.end is None or (span.end is not None and span.end <= parent.end)
            seen.append(span)
        for parent in found:
            siblings = [span for span in found if span.parent_id == parent.span_id]
            assert all(one.begin <= other.begin for one, other in pairwise(siblings))


@CALM
@given(jobs())
def test_the_same_status_gives_the_same_spans_to_whoever_reads_it(made: GangJob) -> None:
    read = GangJob.model_validate_json(made.model_dump_json(by_alias=True, exclude_none=True))
    for mine, theirs in zip(made.status.incidents, read.status.incidents, strict=True):
        assert incident_spans(made, mine) == incident_spans(read, theirs)
        assert is_complete(made, mine, START) == is_complete(read, theirs, START)


@CALM
@given(jobs())
def test_what_is_complete_has_an_end_and_so_has_all_of_it(made: GangJob) -> None:
    for one in made.status.incidents:
        if is_complete(made, one, START + 10_000):
            assert all(span.end is not None for span in incident_spans(made, one))


@CALM
@given(st.data())
def test_what_is_complete_is_not_changed_by_a_decision(data: st.DataObject) -> None:
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


def test_phases_lie_one_after_the_other() -> None:
    made = incident()
    found = incident_spans(job(made), made)
    begins = {span.name: round(span.begin - START, 3) for span in found}
    assert begins == {"gang.restart": 0, "detect": 0, "stop": 0.5, "barrier": 2, "start": 3, "first_step": 5}
    assert found[0].end == START + 10


def test_the_root_is_the_span_that_workers_are_told_to_join() -> None:
    made = incident()
    root = incident_spans(job(made), made)[0]
    assert trace_parent(job(made), made) == f"00-{root.trace_id}-{root.span_id}-01"


def test_a_member_is_fitted_into_its_phase() -> None:
    late = IncidentMember(member="worker-2", part="Slowest", phase="Stop", begin_milliseconds=100, milliseconds=9000)
    made = incident(members=(late,))
    found = named(incident_spans(job(made), made))
    member, stop = found["member.stop"], found["stop"]
    assert (member.parent_id, member.begin, member.end) == (stop.span_id, stop.begin, stop.end)


def test_members_are_told_apart_by_their_incarnation() -> None:
    members = tuple(
        IncidentMember(member="worker-2", incarnation=at, part="Replaced", phase="Replace") for at in range(2)
    )
    made = incident(members=members, milliseconds=PhaseMilliseconds(replace=5))
    found = [span for span in incident_spans(job(made), made) if span.name == "member.replace"]
    assert [dict(span.attributes)["k8s.pod.name"] for span in sorted(found, key=lambda one: str(one.attributes))] == [
        "g-worker-2-0",
        "g-worker-2-1",
    ]


def test_the_member_at_fault_has_failed_unless_it_was_planned() -> None:
    at_fault = IncidentMember(member="worker-1", part="Cause", phase="Stop")
    made = incident(members=(at_fault,))
    assert named(incident_spans(job(made), made))["member.stop"].failed == "exit code 3"
    planned = made.model_copy(update={"planned": True})
    assert not named(incident_spans(job(planned), planned))["member.stop"].failed


def test_a_linked_incident_names_the_trace_before_it_and_never_itself() -> None:
    made = incident(linked_trace_id=LINKED)
    assert incident_spans(job(made), made)[0].link == LINKED
    itself = incident(linked_trace_id=TRACE)
    assert incident_spans(job(itself), itself)[0].link == ""


def test_what_goes_on_has_no_end() -> None:
    opened = incident(
        outcome="Open", settled=False, settled_time=None, milliseconds=PhaseMilliseconds(detect=500), trace_id=TRACE
    )
    found = incident_spans(job(opened, phase=GangPhase.GATHERING), opened)
    assert [(span.name, span.end) for span in found if span.name != "detect"] == [
        ("gang.restart", None),
        ("stop", None),
    ]
    starting = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1, barrier=0))
    assert named(incident_spans(job(starting), starting))["start"].end is None


def test_a_next_fault_before_the_first_step_ends_what_was_going_on() -> None:
    first = incident(lost_steps=5, milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    second = incident(attempt=3, begins=START + 60, trace_id=LINKED)
    made = job(second, first, first_step=STEPPED)
    found = named(incident_spans(made, first))
    assert (found["first_step"].end, found["gang.restart"].end) == (START + 60, START + 60)
    assert found["first_step"].failed == "attempt 3 came first"
    assert is_complete(made, first, START + 61)


def test_a_restart_is_complete_when_stronger_evidence_can_not_come_any_more() -> None:
    made = incident()
    window = job().spec.recovery.evidence_window_seconds
    assert not is_complete(job(made), made, START + 4 + window)
    assert is_complete(job(made), made, START + 4.1 + window)


def test_a_restart_of_a_gang_that_reports_steps_is_not_complete_without_one() -> None:
    made = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    assert not is_complete(job(made, first_step=STEPPED), made, START + 10**6)
    assert incident_spans(job(made, first_step=STEPPED), made)[0].end is None


def test_a_restart_of_a_gang_that_reports_no_steps_is_over_when_the_last_worker_was_started() -> None:
    made = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    assert incident_spans(job(made), made)[0].end == START + 5
    assert not is_complete(job(made), made, START + 3 + QUIET_SECONDS)
    assert not is_complete(job(made), made, START + 3 + QUIET_SECONDS + STORED_SECONDS)
    assert is_complete(job(made), made, START + 4 + QUIET_SECONDS + STORED_SECONDS)


def test_a_first_step_that_comes_after_all_changes_no_trace_that_was_complete() -> None:
    took = PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000)
    made = incident(milliseconds=took)
    whole = incident_spans(job(made), made)
    late = ProgressStatus(attempt=2, step=1, time=START + 1000)
    assert incident_spans(job(made, first_step=late, progress=late), made) == whole
    stepped = incident(milliseconds=took.model_copy(update={"first_step": 995_000}))
    assert incident_spans(job(stepped), stepped) == whole
    again = incident(attempt=3, begins=START + 2000, trace_id=LINKED, lost_steps=5)
    assert incident_spans(job(again, stepped, first_step=late), stepped) == whole


def test_steps_that_are_first_reported_after_the_next_incident_change_nothing_before_it() -> None:
    first = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    second = incident(attempt=3, begins=START + 30, trace_id=LINKED, linked_trace_id=TRACE)
    silent = second.model_copy(update={"milliseconds": second.milliseconds.model_copy(update={"first_step": None})})
    before = job(silent, first)
    assert is_complete(before, first, START + 60)
    step = ProgressStatus(attempt=3, step=1, time=START + 40)
    assert incident_spans(job(second, first, first_step=step, progress=step), first) == incident_spans(before, first)


def test_a_next_fault_long_after_without_a_step_is_known_by_its_link() -> None:
    first = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    second = incident(attempt=3, begins=START + 600, trace_id=LINKED, linked_trace_id=TRACE)
    assert named(incident_spans(job(second, first), first))["first_step"].end == START + 600


GO_ON = ("every pod starts", "everyone is heard again", "everyone is Ready", "everyone runs")
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
"""What may happen, again and again: faults, and first steps before and after them, and none for long."""


@settings(CALM, max_examples=100)
@given(st.lists(st.sampled_from(LIFE), min_size=15, max_size=30))
def test_over_the_life_of_a_gang_what_is_once_complete_stays_as_it_is(walk: list[tuple[str, ...]]) -> None:
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


def test_what_was_written_into_a_status_by_hand_is_still_a_date() -> None:
    much = PhaseMilliseconds.model_construct(
        detect=10**15, stop=10**15, replace=10**15, barrier=10**15, start=10**15, first_step=10**15
    )
    member = IncidentMember(
        member="worker-1", part="Slowest", phase="Stop", begin_milliseconds=10**15, milliseconds=10**15
    )
    made = incident(milliseconds=much, members=(member,))
    for span in incident_spans(job(made, first_step=STEPPED), made):
        assert datetime.fromtimestamp(span.begin, UTC)
        assert span.end is not None
        assert datetime.fromtimestamp(span.end, UTC)


@pytest.mark.parametrize("phase", [GangPhase.SUSPENDED, GangPhase.SUCCEEDED, GangPhase.FAILED, GangPhase.HELD])
def test_a_restart_is_complete_when_its_attempt_has_ended(phase: GangPhase) -> None:
    made = incident(milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    ended = job(made, phase=phase, first_step=STEPPED)
    assert is_complete(ended, made, START + 60)
    assert incident_spans(ended, made)[0].end == START + 5


@pytest.mark.parametrize("outcome", ["Failed", "Held"])
def test_an_incident_that_ends_the_job_has_failed(outcome: str) -> None:
    made = incident(outcome=outcome, milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000))
    root = incident_spans(job(made, phase=GangPhase.FAILED), made)[0]
    assert (root.failed, root.end) == ("exit code 3", START + 3)


def test_a_status_of_an_older_version_has_traces_as_well() -> None:
    old = {
        "attempt": 2,
        "time": "2026-01-31T12:00:00Z",
        "cause": {"reason": "ExitCode", "time": "2026-01-31T12:00:00Z"},
        "settled": True,
        "settledTime": "2026-01-31T12:00:09Z",
        "outcome": "Failed",
    }
    made = Incident.model_validate(old)
    found = incident_spans(job(made, phase=GangPhase.FAILED), made)
    assert found[0].trace_id == trace_id(job(), 2)
    assert (found[0].end or 0) - found[0].begin == 9
    assert is_complete(job(made), made, made.time + 60)
