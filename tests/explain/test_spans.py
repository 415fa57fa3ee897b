"""The spans of any status are a tree, and the same in every process."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentMember, PhaseMilliseconds, WarmStart
from gangctl.api.model import changed
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import root_span_id, trace_id, trace_parent
from gangctl.story.spans import Span, incident_spans, is_complete
from tests.core.arbitrary import jobs
from tests.core.world import START
from tests.explain.incidents import CALM, LINKED, STEPPED, TRACE, incident, job, named


@CALM
@given(jobs())
def test_the_spans_of_any_status_are_a_tree_and_each_lies_within_its_parent(made: GangJob) -> None:
    for one in made.status.incidents:
        found = incident_spans(made, one)
        root, by_id = found[0], {span.span_id: span for span in found}
        assert len(by_id) == len(found), "an id twice"
        assert (root.parent_id, root.span_id) == ("", root_span_id(root.trace_id))
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
def test_every_process_computes_the_same_spans_from_a_status(made: GangJob) -> None:
    read = GangJob.model_validate_json(made.model_dump_json(by_alias=True, exclude_none=True))
    for mine, theirs in zip(made.status.incidents, read.status.incidents, strict=True):
        assert incident_spans(made, mine) == incident_spans(read, theirs)
        assert is_complete(made, mine, START) == is_complete(read, theirs, START)


def test_phases_follow_one_another() -> None:
    made = incident()
    found = incident_spans(job(made), made)
    begins = {span.name: round(span.begin - START, 3) for span in found}
    assert begins == {"gang.restart": 0, "detect": 0, "stop": 0.5, "barrier": 2, "start": 3, "first_step": 5}
    assert found[0].end == START + 10


def test_the_root_is_the_parent_span_in_the_workers_traceparent() -> None:
    made = incident()
    root = incident_spans(job(made), made)[0]
    assert trace_parent(job(made), made) == f"00-{root.trace_id}-{root.span_id}-01"


def test_a_members_span_is_cut_to_its_phase() -> None:
    late = IncidentMember(member="worker-2", part="Slowest", phase="Stop", begin_milliseconds=100, milliseconds=9000)
    made = incident(members=(late,))
    found = named(incident_spans(job(made), made))
    member, stop = found["member.stop"], found["stop"]
    assert (member.parent_id, member.begin, member.end) == (stop.span_id, stop.begin, stop.end)


def test_incarnations_of_a_member_have_different_spans() -> None:
    members = tuple(
        IncidentMember(member="worker-2", incarnation=at, part="Replaced", phase="Replace") for at in range(2)
    )
    made = incident(members=members, milliseconds=PhaseMilliseconds(replace=5))
    found = [span for span in incident_spans(job(made), made) if span.name == "member.replace"]
    assert [dict(span.attributes)["k8s.pod.name"] for span in sorted(found, key=lambda one: str(one.attributes))] == [
        "g-worker-2-0",
        "g-worker-2-1",
    ]


def test_the_span_of_the_member_at_fault_has_failed_unless_the_restart_was_planned() -> None:
    at_fault = IncidentMember(member="worker-1", part="Cause", phase="Stop")
    made = incident(members=(at_fault,))
    assert named(incident_spans(job(made), made))["member.stop"].failed == "exit code 3"
    planned = made.model_copy(update={"planned": True})
    assert not named(incident_spans(job(planned), planned))["member.stop"].failed


def test_the_root_has_the_words_of_the_framework_with_what_was_seen() -> None:
    made = incident()
    asked = changed(made, cause=changed(made.cause, message="the framework asked for a restart", words="a slow link"))
    root = dict(incident_spans(job(asked), asked)[0].attributes)
    assert root["gang.cause.message"] == "the framework asked for a restart: a slow link"


@pytest.mark.parametrize("outcome", ["Restarted", "Failed", "Held"])
def test_only_a_restart_restored_a_step(outcome: str) -> None:
    made = incident(outcome=outcome, restored_step=40)
    root = dict(incident_spans(job(made), made)[0].attributes)
    assert root.get("gang.restored_step") == (40 if outcome == "Restarted" else None)


def test_the_root_says_how_the_workers_were_started() -> None:
    def told(made: Incident) -> dict[str, object]:
        root = dict(incident_spans(job(made), made)[0].attributes)
        return {key: value for key, value in root.items() if key.startswith("gang.start.")}

    assert told(incident()) == {}
    assert told(incident(warm_start=WarmStart(forked=4))) == {"gang.start.forked": 4, "gang.start.executed": 0}
    warm = WarmStart(forked=3, executed=1, member="worker-2", obstacle="a thread")
    expected = {"gang.start.forked": 3, "gang.start.executed": 1, "gang.start.obstacle": "a thread"}
    assert told(incident(warm_start=warm)) == expected


def test_a_linked_incident_links_to_the_trace_before_and_never_to_its_own() -> None:
    made = incident(linked_trace_id=LINKED)
    assert incident_spans(job(made), made)[0].link == LINKED
    itself = incident(linked_trace_id=TRACE)
    assert incident_spans(job(itself), itself)[0].link == ""


def test_a_phase_that_goes_on_has_no_end() -> None:
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


def test_a_fault_before_the_first_step_ends_the_open_phase() -> None:
    first = incident(lost_steps=5, milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000, start=2000))
    second = incident(attempt=3, begins=START + 60, trace_id=LINKED)
    made = job(second, first, first_step=STEPPED)
    found = named(incident_spans(made, first))
    assert (found["first_step"].end, found["gang.restart"].end) == (START + 60, START + 60)
    assert found["first_step"].failed == "attempt 3 came first"
    assert is_complete(made, first, START + 61)


"""What may happen, again and again: faults, and first steps before and after them, and none for long."""


def test_any_number_in_a_status_gives_a_valid_date() -> None:
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


@pytest.mark.parametrize("outcome", ["Failed", "Held"])
def test_the_root_of_an_incident_that_ends_the_job_has_failed(outcome: str) -> None:
    made = incident(outcome=outcome, milliseconds=PhaseMilliseconds(detect=500, stop=1500, barrier=1000))
    spans = incident_spans(job(made, phase=GangPhase.FAILED), made)
    assert (spans[0].failed, spans[0].end) == ("exit code 3", START + 3)
    assert [span.name for span in spans[1:] if span.parent_id == spans[0].span_id] == ["detect", "stop", "evidence"]


def test_a_status_of_an_older_version_has_traces() -> None:
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
