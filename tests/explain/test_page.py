"""What the page shows: everything that a reader needs of a small gang, and a bounded part of a large one."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from bench.decide import NOW, job, observed
from gangctl.api.gangjob import GangJob, ReplicaGroup
from gangctl.api.incident import Cause, Incident, IncidentMember, Output, PhaseMilliseconds
from gangctl.api.model import changed
from gangctl.api.status import Condition, FirstStep, GangPhase, MemberSnapshot, Spent
from gangctl.core.facts.world import Observed
from gangctl.story import page as members
from gangctl.story.incidents import IncidentStory, is_address
from gangctl.story.page import LARGEST_BYTES, MOST_ROWS, Count, GangPage, encoded, gang, listed, within
from gangctl.story.words import state
from gangsidecar.wire import Phase

TRACES = "https://jaeger.example.com/ui"


def seen(given: GangJob, world: Observed) -> GangPage:
    return gang(NOW, given, world, TRACES)


def with_status(given: GangJob, **status: Any) -> GangJob:
    return changed(given, status=given.status.model_copy(update=status))


def member(at: int, phase: str = "Running", **more: Any) -> MemberSnapshot:
    base = {"member": f"worker-{at}", "role": "worker", "pod": f"g-worker-{at}-0", "incarnation": 0, "rank": at}
    return MemberSnapshot.model_validate({**base, "connected": True, "phase": phase, "step": 100 + at, **more})


def incident(attempt: int = 2, **more: Any) -> Incident:
    cause = Cause(
        reason="Signal", member="worker-1", rank=1, signal="SIGKILL", time=NOW - 20, message="ended by SIGKILL"
    )
    times = PhaseMilliseconds(**more.pop("milliseconds", {"detect": 10, "stop": 100, "barrier": 5, "start": 50}))
    settled = {"settled": True, "outcome": "Restarted", "charged": True}
    return Incident(attempt=attempt, time=NOW - 20, cause=cause, milliseconds=times, **{**settled, **more})


def shown(one: Incident, **status: Any) -> IncidentStory:
    given = with_status(job(4, GangPhase.RUNNING, one.attempt), incidents=(one,), **status)
    (found,) = seen(given, Observed()).incidents
    return found


def test_each_member_of_a_small_gang_has_a_cell_with_its_state_rank_and_step() -> None:
    given = job(8, replaced=0)
    found = seen(given, observed(given, Phase.RUNNING, 2))
    assert [cell.name for cell in found.cells] == [f"worker-{at}" for at in range(8)]
    assert {(cell.state, cell.step) for cell in found.cells} == {("Running", 250)}
    assert [cell.rank for cell in found.cells] == list(range(8))
    assert (found.hidden, found.counts[0].members) == (0, 8)


def test_members_without_a_pod_a_connection_or_an_end_are_told_apart() -> None:
    states = {
        state(member(0)): "Running",
        state(member(1, phase="Stopping")): "Stopping",
        state(member(2, connected=False)): "Not connected",
        state(member(3, phase="", connected=False)): "Starting",
        state(member(4, pod="", connected=False)): "No pod",
        state(member(5, terminated=True)): "Ended",
        state(member(6, terminated=True, finished=True)): "Finished",
    }
    assert list(states) == list(states.values())


def test_a_gang_that_hangs_is_shown_so_in_its_page_and_in_the_list() -> None:
    runs = job(2)
    hang = Condition(type="Degraded", status="True", reason="Hang", message="m", last_transition_time=NOW)
    hung = with_status(runs, conditions=(hang,))
    assert [seen(one, Observed()).hangs for one in (hung, runs)] == [True, False]
    assert sorted(row.hangs for row in listed([hung, runs]).rows) == [False, True]


def test_ten_thousand_members_make_a_small_document_quickly() -> None:
    given = job(10_000)
    world = observed(given, Phase.RUNNING, 2)
    began = time.process_time()
    found = seen(given, world)
    document = encoded(found)
    assert time.process_time() - began < 2, "about 0.1 s"
    assert len(document) < 2_000
    assert [(cell.name, cell.last, cell.members) for cell in found.cells] == [
        ("worker-0", "worker-9799", 9800),
        ("worker-9800", "worker-9999", 200),
    ]


def test_of_ten_thousand_members_in_two_states_in_turn_the_rarer_ones_have_cells() -> None:
    crowd = [member(at, phase="Stopping" if at % 3 == 0 else "Running") for at in range(10_000)]
    cells, hidden = members.cells(crowd)
    assert {cell.state for cell in cells} == {"Stopping"}
    assert len(cells) == members.MOST_CELLS
    assert hidden == 10_000 - members.MOST_CELLS
    assert [(one.state, one.members) for one in members.counts(crowd)] == [("Running", 6666), ("Stopping", 3334)]


def test_the_member_at_fault_comes_first_and_of_many_members_also_those_that_differ_and_the_one_behind() -> None:
    crowd = [member(at) for at in range(1000)]
    crowd[7] = member(7, phase="Stuck")
    crowd[8] = member(8, step=3)
    one = incident(members=(IncidentMember(member="worker-4", part="Replaced", phase="Replace"),))
    found = members.interest(crowd, one, {"worker-1": "node-1"})
    assert [(each.name, each.why) for each in found] == [
        ("worker-1", "at fault"),
        ("worker-4", "its pod was replaced"),
        ("worker-7", "in another state than most"),
        ("worker-8", "the lowest step"),
    ]
    assert found[0].node == "node-1"
    assert members.interest(crowd[:4], None, {}) == ()


@pytest.mark.parametrize("letter", ["x", "語", '"', "\x1b"])
@pytest.mark.parametrize("size", [members.MOST_CELLS, 10_000])
def test_a_status_with_the_longest_texts_still_makes_a_document_within_the_bound(letter: str, size: int) -> None:
    text, label = letter * 1024, "w" * 63
    cause = changed(incident().cause, message=text, rule=label, node="n" * 253, tied=(label,) * 8, member="worker-1")
    parts = tuple(
        IncidentMember(member=label, node="n" * 253, part="Slowest", phase=phase, milliseconds=10**6)
        for phase in ("Stop", "Replace", "Start", "CheckpointLoad", "FirstStep")
    )
    phases = dict.fromkeys(("detect", "stop", "replace", "back_off", "barrier", "start", "first_step"), 10**6)
    told = tuple(
        Condition(type=f"C{at}", status="True", reason=label, message=f"{at} {text}", last_transition_time=NOW)
        for at in range(16)
    )
    output = Output(member="worker-1", text=f"{letter * 99}\n" * 10)
    cause = changed(cause, printed=text)
    one = incident(
        output=output, milliseconds=phases, members=parts, restored_step=10**9, lost_steps=10**6, lost_seconds=1e6
    )
    given = with_status(
        job(size), incidents=(changed(one, cause=cause),) * 10, message=text, conditions=told, spent=Spent(training=9e6)
    )
    world = observed(given, Phase.RUNNING, 2)
    document = encoded(seen(given, world))
    assert len(document) < LARGEST_BYTES
    json.loads(document)


def test_text_from_outside_is_escaped_and_markup_stays_text() -> None:
    cause = changed(incident().cause, message="<img src=x onerror=alert(1)>\x1b[31m\u202e")
    found = shown(changed(incident(), cause=cause))
    assert found.cause == "worker-1 (rank 1): <img src=x onerror=alert(1)>\\x1b[31m\\u202e"


def test_an_incident_has_its_phases_its_decision_its_cost_and_its_trace() -> None:
    times = {"detect": 10, "stop": 100, "barrier": 5, "start": 50, "first_step": 30}
    found = shown(incident(restored_step=50, lost_steps=5, lost_seconds=2.5, milliseconds=times))
    assert [(str(bar.kind), round(1000 * bar.seconds)) for bar in found.phases] == [
        ("detect", 10),
        ("stop", 100),
        ("barrier", 5),
        ("start", 50),
        ("first_step", 30),
    ]
    assert found.decision == (
        "No rule of podFailurePolicy matched: "
        "level Process (every worker restarts inside its pod), charged to the budget"
    )
    assert found.cost == "restarted from step 50; 5 steps were lost, 2.50 s of training"
    seldom = shown(incident(restored_step=50, lost_steps=0, lost_steps_at_most=9, lost_seconds=0.0))
    assert seldom.cost == "restarted from step 50; 0 to 9 steps were lost: not every step was reported"
    assert found.url == f"{TRACES}/trace/{found.trace_id}"
    assert found.begin == pytest.approx(NOW - 20.01)


@pytest.mark.parametrize(
    ("one", "phase"),
    [
        (incident(outcome="Open", settled=False, milliseconds={"detect": 1}), "stop"),
        (incident(milliseconds={"detect": 1, "stop": 2, "barrier": 3}), "start"),
        (incident(), "first_step"),
    ],
)
def test_the_phase_that_goes_on_has_no_duration(one: Incident, phase: str) -> None:
    found = shown(one, first_step=FirstStep(attempt=1, step=1, time=NOW - 400))
    assert (found.phases[-1].kind, found.phases[-1].goes_on) == (phase, True)


def test_an_incident_of_a_gang_without_steps_ends_with_the_start() -> None:
    assert shown(incident(), first_step=None, progress=None, phase=GangPhase.HELD).phases[-1].kind == "start"


def test_the_last_incident_has_the_words_of_the_worker_line_by_line() -> None:
    words = "Traceback:\n\x1b[31mRuntimeError: <b>no dataset</b>"
    cause = changed(incident().cause, printed="RuntimeError: no dataset")
    one = changed(incident(3), cause=cause, output=Output(member="worker-1", text=words))
    given = with_status(job(4, GangPhase.RUNNING, 3), incidents=(one, changed(one, attempt=2)))
    last, before = seen(given, Observed()).incidents
    assert last.cause == before.cause == 'worker-1 (rank 1): ended by SIGKILL, printed "RuntimeError: no dataset"'
    assert last.output is not None
    assert last.output.text == "Traceback:\n\\x1b[31mRuntimeError: <b>no dataset</b>"
    assert before.output is None


def test_goodput_is_absent_while_no_step_was_reported() -> None:
    given = job(4)
    found = seen(given, Observed())
    assert (found.goodput, found.spent) == (None, ())


def test_a_condition_does_not_repeat_what_the_message_says() -> None:
    def told(kind: str, message: str, status: str = "True") -> Condition:
        return Condition.model_validate(
            {"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": NOW}
        )

    every = (told("Accepted", "same"), told("Ready", "same"), told("Degraded", "new"), told("Failed", "no", "False"))
    given = with_status(job(2), message="same", conditions=every)
    assert [one.type for one in seen(given, Observed()).conditions] == ["Degraded"]


def test_the_list_shows_gangs_that_have_not_ended_first_then_the_newest_end() -> None:
    def one(name: str, phase: GangPhase, over: float | None = None) -> GangJob:
        made = with_status(job(2), phase=phase, completion_time=over)
        return changed(made, metadata=made.metadata.model_copy(update={"name": name}))

    done = [one(f"done-{at}", GangPhase.SUCCEEDED, NOW + at) for at in range(1000)]
    running = [one(name, GangPhase.RUNNING) for name in ("b", "a")]
    found = listed([*done, *running], unreadable=3)
    assert [row.name for row in found.rows[:4]] == ["a", "b", "done-999", "done-998"]
    assert (found.total, len(found.rows), found.unreadable) == (1002, MOST_ROWS, 3)


def test_the_gangs_of_a_replica_group_are_beside_each_other_by_their_index_even_after_some_have_ended() -> None:
    def one(name: str, phase: GangPhase = GangPhase.RUNNING, index: int | None = None) -> GangJob:
        made = with_status(job(2), phase=phase, completion_time=NOW if phase is GangPhase.FAILED else None)
        group = None if index is None else ReplicaGroup(name="train", index=index)
        spec = changed(made.spec, replica_group=group)
        return changed(made, spec=spec, metadata=made.metadata.model_copy(update={"name": name}))

    gangs = [one("zz", index=0), one("b", GangPhase.FAILED, 2), one("a", index=10), one("c"), one("train"), one("u")]
    rows = listed([*gangs, one("old", GangPhase.FAILED)]).rows
    assert [(row.name, row.group) for row in rows] == [
        ("c", ""),
        ("train", ""),
        *(("zz", "train"), ("b", "train"), ("a", "train")),
        ("u", ""),
        ("old", ""),
    ]
    assert seen(gangs[0], Observed()).group == "train"


@pytest.mark.parametrize("letter", ["n", "語", "🙂", '"', "\\"])
def test_the_longest_list_is_within_the_bound_and_has_the_gangs_that_have_not_ended(letter: str) -> None:
    made = with_status(job(2), phase=GangPhase.RUNNING, ready=letter * 63, attempt=10**6)
    cause = changed(incident().cause, reason=letter * 63)
    made = with_status(made, incidents=(changed(incident(), cause=cause),))
    metadata = made.metadata.model_copy(update={"name": letter * 253, "namespace": letter * 63})
    over = with_status(made, phase=GangPhase.FAILED, completion_time=NOW)
    found = listed([changed(one, metadata=metadata) for one in [over] * 5000 + [made] * 5], unseen=9)
    assert len(encoded(found)) < LARGEST_BYTES
    assert len(found.rows) > 20
    assert [row.phase for row in found.rows[:6]] == ["Running"] * 5 + ["Failed"]
    assert found.total == 5005


def test_cells_leave_out_what_does_not_fit_and_those_are_counted() -> None:
    crowd = tuple(
        member(at, member=f"{'w' * 15}-{at}", step=10**12, restarts=10**9, rank=at, spare=True)
        for at in range(members.MOST_CELLS)
    )
    cells, _ = members.cells(crowd)
    full = partial(
        GangPage,
        namespace="n",
        name="n",
        phase="Running",
        since=NOW,
        created=NOW,
        message="m",
        ready="r",
        attempt=1,
        counted=0,
        uncounted=0,
    )
    counts = tuple(Count(role="r", state="x" * 500, members=1) for _ in range(70))
    page = full(counts=counts)
    shown = within(page, cells)
    assert 0 < len(shown) < len(cells)
    assert len(encoded(full(counts=counts, cells=shown))) < LARGEST_BYTES
    assert len(encoded(full(counts=counts, cells=cells[: len(shown) + 2]))) >= LARGEST_BYTES, "no room is wasted"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("https://jaeger.example.com", True),
        ("http://[::1]:16686/ui", True),
        ("javascript:alert(1)", False),
        ("https://", False),
        ("https://a/?q", False),
        ("https://a b", False),
        ("http://[", False),
        ("http://a:0", False),
    ],
)
def test_only_an_http_address_is_linked_to(text: str, *, good: bool) -> None:
    assert is_address(text) is good
