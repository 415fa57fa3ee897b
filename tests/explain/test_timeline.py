"""The timeline tells what the status tells, and no more."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Spent
from gangctl.story import svg
from gangctl.story.bars import MarkKind, Row
from gangctl.story.phases import Activity
from gangctl.story.replicas import group_story
from gangctl.story.svg import drawn
from gangctl.story.timeline import Story, story
from tests.cli.tracecases import BEGAN, NASTY, hostile
from tests.core.arbitrary import jobs
from tests.core.world import START
from tests.explain.incidents import CALM
from tests.explain.timelinecases import HOUR, fault, gang, lost_node, night


def strip(row: Row) -> list[tuple[str, float, int]]:
    """Kind, seconds and attempt of each bar."""
    return [(str(bar.kind), round(bar.seconds, 3), bar.attempt) for bar in row.bars]


def of(made: Story, name: str) -> Row:
    return next(row for row in made.rows if row.name == name)


def test_the_time_of_a_replica_group_is_that_of_its_gangs() -> None:
    one = replace(story(gang(), BEGAN + 200), spent=Spent(**dict.fromkeys(Spent.model_fields, 100.0)))
    group = group_story("g", [one, one])
    assert group.spent == Spent(**dict.fromkeys(Spent.model_fields, 200.0))


@CALM
@given(jobs())
def test_the_rows_of_any_status_have_no_gap_and_its_picture_is_xml(made: GangJob) -> None:
    told = story(made, START)
    for row in told.rows:
        assert (row.bars[0].begin, row.bars[-1].end) == (told.begin, told.end)
        assert all(first.end == second.begin for first, second in pairwise(row.bars))
        assert all(bar.begin < bar.end for bar in row.bars) or told.begin == told.end
        assert all(told.begin <= mark.time <= told.end for mark in row.marks)
    assert all(told.begin <= one.time <= told.end for one in told.attempts)
    ET.fromstring(drawn(told))
    ET.fromstring(svg.svg(told, 1))


def test_a_restart_in_place_is_an_attempt_the_phases_and_the_next_attempt() -> None:
    told = story(gang(fault(2, 100)), BEGAN + 200)
    phases = [("stop", 0.111, 2), ("barrier", 0.008, 2), ("start", 0.044, 2), ("first_step", 2.297, 2)]
    assert strip(told.rows[0]) == [
        ("waiting", 20, 1),
        ("running", 78.75, 1),
        ("lost", 1.25, 1),
        *phases,
        ("running", 97.54, 2),
    ]
    assert [(one.attempt, round(one.time - BEGAN, 3)) for one in told.attempts] == [(1, 20), (2, 100.119)]
    assert [(mark.kind, mark.label) for mark in told.rows[0].marks] == [(MarkKind.RESTORE, "50")]
    assert [(str(bar.kind), round(bar.seconds, 3)) for bar in told.incidents[0].phases] == [
        ("detect", 0),
        *((kind, seconds) for kind, seconds, _ in phases),
    ]


def test_a_member_shows_its_own_part_and_the_rest_of_an_incident_is_unknown() -> None:
    told = story(gang(fault(2, 100), replicas=6), BEGAN + 200)
    assert [row.name for row in told.rows] == ["gang", "worker-0", "worker-1", "worker-2", "worker-3", "2 others"]
    around = [("waiting", 20, 1), ("running", 78.75, 1), ("lost", 1.25, 1)], [("running", 97.54, 2)]
    cause, other = of(told, "worker-1"), of(told, "2 others")
    assert strip(cause) == [*around[0], ("stop", 0.003, 2), ("unknown", 2.457, 2), *around[1]]
    assert strip(other) == [*around[0], ("unknown", 2.46, 2), *around[1]]
    assert [(mark.kind, mark.time - BEGAN, mark.text) for mark in cause.marks] == [
        (MarkKind.FAULT, 100, "worker-1 (rank 1): ended by SIGKILL in attempt 1")
    ]
    assert (cause.text, of(told, "worker-2").text, other.text) == ("at fault once", "waited for once", "")
    assert strip(of(told, "worker-2"))[3:8] == [
        ("unknown", 0.163, 2),
        ("first_step", 0.737, 2),
        ("checkpoint_load", 0.7, 2),
        ("first_step", 0.86, 2),
        ("running", 97.54, 2),
    ]


def test_a_gang_without_incidents_is_one_attempt_and_has_no_rows_for_members() -> None:
    first = {"attempt": 1, "step": 1, "time": BEGAN + 32}
    told = story(gang(firstStep=first), BEGAN + 100)
    assert [strip(row) for row in told.rows] == [[("waiting", 20, 1), ("starting", 12, 1), ("running", 68, 1)]]
    assert told.incidents == ()
    assert svg.tables(told) == ""


def test_the_first_step_of_the_first_attempt_follows_from_what_time_was_spent_on() -> None:
    spent = {"pending": 15.0, "startUp": 20.0, "training": 100.0, "recovery": 2.5}
    later = {"attempt": 2, "step": 51, "time": BEGAN + 102}
    known: dict[str, Any] = {"spent": spent, "accountedTime": BEGAN + 137.5, "firstStep": later}
    starts = [("waiting", 20, 1), ("starting", 15, 1), ("running", 63.75, 1), ("lost", 1.25, 1)]
    assert strip(story(gang(fault(2, 100), **known), BEGAN + 200).rows[0])[:4] == starts
    # A suspension forgets when the attempt was started, not what was spent.
    rest: dict[str, Any] = {"phase": "Suspended", "phaseTime": BEGAN + 137.5, "startTime": None}
    assert strip(story(gang(fault(2, 100), **known, **rest), BEGAN + 200).rows[0])[:2] == [
        ("unknown", 35, 0),
        ("running", 63.75, 1),
    ]
    # New pods were pending, too: how long the first ones were is unknown.
    new_pods = story(gang(fault(2, 100, level="Gang"), **known), BEGAN + 200)
    assert strip(new_pods.rows[0])[:3] == [("waiting", 20, 1), ("running", 78.75, 1), ("lost", 1.25, 1)]


@pytest.mark.parametrize("phase", ["Pending", "Gathering"])
def test_a_gang_that_has_not_started_waits(phase: str) -> None:
    told = story(gang(phase=phase, startTime=None, startedAttempt=0), BEGAN + 100)
    assert strip(told.rows[0]) == [("waiting", 100, 1)]
    assert told.rows[0].bars[0].goes_on


def test_a_suspended_gang_is_suspended_since_its_phase_began_and_what_was_before_is_not_guessed() -> None:
    first = {"attempt": 1, "step": 1, "time": BEGAN + 32}
    now: dict[str, Any] = {"phase": "Suspended", "startTime": None, "phaseTime": BEGAN + 60}
    assert strip(story(gang(firstStep=first, **now), BEGAN + 100).rows[0]) == [
        ("unknown", 32, 0),
        ("running", 28, 1),
        ("suspended", 40, 1),
    ]
    after = story(gang(fault(2, 30), firstStep=first, **now), BEGAN + 100)
    assert strip(after.rows[0])[-2:] == [("running", 27.54, 2), ("suspended", 40, 2)]


def test_when_a_gang_that_runs_again_was_suspended_is_unknown() -> None:
    resumed = [{"time": BEGAN + 300, "attempt": 3, "charged": False}]
    again: dict[str, Any] = {"resumedAttempt": 3, "startTime": BEGAN + 320, "attempt": 3, "ledger": resumed}
    told = story(gang(fault(2, 100), **again), BEGAN + 400)
    assert strip(told.rows[0])[-3:] == [("unknown", 197.54, 0), ("waiting", 20, 3), ("running", 80, 3)]
    assert [one.attempt for one in told.attempts] == [2, 3]
    member = of(told, "worker-1")
    assert strip(member)[-1] == ("running", 80, 3)
    # Before the resume the gang may have had other roles: only what incidents tell of the member is known.
    in_first = ([kind for kind, _, at in strip(of(told, name)) if at == 1] for name in ("worker-1", "worker-2"))
    assert list(in_first) == [["lost"], ["unknown"]]


def test_an_incident_that_goes_on_ends_now_and_a_clock_behind_ends_it_where_it_began() -> None:
    gathers = fault(2, 100, outcome="Open", settled=False, settledTime=None, milliseconds={"detect": 0}, members=[])
    for now, took in ((BEGAN + 130, 30), (BEGAN + 90, 0)):
        told = story(gang(gathers, phase="Gathering"), now)
        assert [(str(bar.kind), bar.seconds, bar.goes_on) for bar in told.incidents[0].phases][-1] == (
            "stop",
            took,
            True,
        )
        assert told.incidents[0].goes_on
        assert told.end == max(now, BEGAN + 100)


def test_a_gang_that_is_held_is_held_until_its_next_attempt_or_now() -> None:
    ends = {"stop": 1000, "barrier": 0}
    held = fault(2, 100, outcome="Held", milliseconds=ends, members=[], restoredStep=None, lostSteps=None)
    now = story(gang(held, phase="Held", phaseTime=BEGAN + 100.119), BEGAN + 200)
    assert strip(now.rows[0])[-2:] == [("stop", 0.119, 2), ("held", 99.881, 2)]
    then = story(gang(fault(3, 150, lostSeconds=None), held), BEGAN + 200)
    assert [kind for kind, _, _ in strip(then.rows[0])][-6:] == [
        "held",
        "stop",
        "barrier",
        "start",
        "first_step",
        "running",
    ]


def test_a_gang_that_has_ended_ends_there_whatever_the_time_is() -> None:
    told = story(gang(phase="Succeeded", completionTime=BEGAN + 60, phaseTime=BEGAN + 60), BEGAN + HOUR)
    assert (told.end - told.begin, told.complete) == (60, True)
    assert strip(told.rows[0]) == [("waiting", 20, 1), ("running", 40, 1)]


def test_a_gang_whose_run_was_interrupted_ends_there_although_its_status_runs() -> None:
    told = story(gang(fault(2, 100)), BEGAN + 200, is_stopped=True)
    assert (told.phase, told.complete, told.end) == ("Stopped", True, BEGAN + 200)
    assert told.sentences[0].startswith("Stopped, attempt 2, 3 min 20 s, from ")
    assert [bar for row in told.rows for bar in row.bars if bar.goes_on] == []


def test_a_gang_that_ended_while_it_was_suspended_is_not_shown_as_running_until_then() -> None:
    told = story(
        gang(fault(2, 30), phase="Failed", startTime=None, completionTime=BEGAN + 60, phaseTime=BEGAN + 60), BEGAN + 70
    )
    assert strip(told.rows[0])[-1] == ("unknown", 27.54, 0)


def test_of_restarts_before_the_kept_incidents_only_the_begin_is_known() -> None:
    ledger = [
        {"time": BEGAN + 10 * at, "attempt": at, "charged": True, "member": "worker-3" if at == 5 else ""}
        for at in range(2, 13)
    ]
    kept = [fault(at, 10 * at, lostSeconds=0.0) for at in range(12, 2, -1)]
    told = story(gang(*kept[:-3], ledger=ledger, startTime=BEGAN + 1), BEGAN + 200)
    assert strip(told.rows[0])[0] == ("unknown", 60, 0)
    faults = [mark for mark in told.rows[0].marks if mark.kind is MarkKind.FAULT]
    assert [mark.time - BEGAN for mark in faults] == [20, 30, 40, 50]
    assert faults[-1].text == "the restart to attempt 5 began; worker-3 was at fault"
    assert told.sentences[-1].startswith("What the status doesn't tell is drawn as unknown: it keeps the last 10")


def test_the_steps_that_were_lost_are_those_of_the_incidents_that_are_kept() -> None:
    def told(counted: int) -> str:
        restarts = {"counted": counted, "uncounted": 1}
        found = gang(fault(6, 2000, lostSteps=7), fault(5, 100, lostSteps=5), restarts=restarts)
        return story(found, BEGAN + HOUR).sentences[2]

    assert told(1) == "1 restart charged to the budget, 1 not charged; 12 steps lost."
    assert told(4) == "4 restarts charged to the budget, 1 not charged; 12 steps lost in the last 2."


def test_a_clock_that_jumps_back_makes_no_negative_times() -> None:
    told = story(gang(fault(3, 50), fault(2, 100)), BEGAN + 40)
    assert (told.begin - BEGAN, round(told.end - BEGAN, 3)) == (0, 102.46)
    assert [one.attempt for one in told.incidents] == [2, 3]
    assert all(bar.begin < bar.end for row in told.rows for bar in row.bars)
    assert all(bar.seconds >= 0 for one in told.incidents for bar in one.phases)


def test_a_gang_that_was_restored_from_a_backup_is_older_than_its_object() -> None:
    told = story(gang(fault(2, 100), created=BEGAN + 500, startTime=BEGAN + 20), BEGAN + 600)
    assert (told.begin, told.end) == (BEGAN + 20, BEGAN + 600)


def test_lost_work_is_no_longer_than_what_the_attempt_trained() -> None:
    told = story(gang(fault(2, 100, lostSeconds=1e6)), BEGAN + 200)
    assert strip(told.rows[0])[:2] == [("waiting", 20, 1), ("lost", 80, 1)]


def test_a_spare_is_shown_only_in_attempts_in_which_it_is_known_to_have_run() -> None:
    told = story(gang(fault(3, 200), fault(2, 100), replicas=3, spares=1), BEGAN + 300)
    first, last = (
        dict.fromkeys(kind for kind, _, attempt in strip(of(told, "worker-3")) if attempt == at) for at in (1, 3)
    )
    assert list(first) == ["waiting", "unknown"]
    assert Activity.RUNNING not in last


def test_a_member_that_has_finished_is_not_shown_as_running() -> None:
    done = {"attempt": 2, "time": BEGAN + 150, "roles": [{"name": "worker", "indexes": "1"}]}
    told = story(gang(fault(2, 100), finished=done), BEGAN + 200)
    assert strip(of(told, "worker-1"))[-1] == ("unknown", 99.997, 2)
    assert strip(of(told, "worker-0"))[-1] == ("running", 97.54, 2)


def test_ten_thousand_members_have_a_few_rows_and_a_small_picture() -> None:
    kept = [lost_node(at, HOUR * at, f"worker-{at * 700}") for at in range(11, 1, -1)]
    told = story(gang(*kept, replicas=10_000), BEGAN + 20 * HOUR)
    assert (len(told.rows), told.rows[-1].members, told.rows[-1].name) == (14, 9988, "9988 others")
    assert len(drawn(told)) < 40_000
    assert {row.text for row in told.rows[1:-1]} == {"at fault once, waited for once", "waited for 10 times"}


def test_every_text_is_escaped_in_pictures_and_pages() -> None:
    made = hostile()
    job = made.model_copy(update={"metadata": made.metadata.model_copy(update={"name": f'<script>{NASTY}\uffff&"'})})
    told = story(job, BEGAN + 300)
    for text in (drawn(told), svg.svg(told), svg.page(told)):
        assert not {"\x1b", "\r", "\u202e", "\x9b", "\uffff"} & set(text)
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    ET.fromstring(svg.svg(told))
    for text in (drawn(told), svg.page(told)):
        assert not any(word in text for word in ("style=", "href", "id=", "javascript"))


def test_a_page_has_the_incidents_and_the_members_as_tables() -> None:
    text = svg.page(story(night(), BEGAN + 9 * HOUR))
    assert text.count("<caption>") == 2
    assert "worker-17 (rank 1): its node node-7 is not ready" in text
    assert "<td>14 min 02 s</td>" in text
    assert "at fault 2 times" in text


def test_goodput_and_what_the_time_was_spent_on_are_told() -> None:
    told = story(night(), BEGAN + 9 * HOUR)
    assert told.sentences == (
        "Running, attempt 6, 9 h 00 min so far, from 2026-01-31T12:00:00Z to 2026-01-31T21:00:00Z.",
        "Goodput 86.5%: 8 h 03 min training (37 min 58 s of it lost), 1 min 20 s start-up, 30 min 15 s recovery.",
        "3 restarts charged to the budget, 2 not charged; 378 steps lost.",
    )
    assert story(gang(), BEGAN + 40).sentences[1].startswith("No step was reported, so goodput is unknown")


def test_what_a_smaller_attempt_trains_is_drawn_thinner() -> None:
    smaller = {"attempt": 2, "roles": [{"name": "worker", "members": 3}]}
    shrunk = {**fault(2, 100), "missingMembers": 1}
    job = gang(shrunk, roles=[{"name": "worker", "desired": 4}], size=smaller)
    told = story(job, BEGAN + 200)
    running = [bar for bar in told.rows[0].bars if bar.kind is Activity.RUNNING]
    assert [bar.share for bar in running] == [1, 0.75]
    assert "runs with 75% of the members" in running[1].text
    assert all(bar.share == 1 for row in told.rows[1:] for bar in row.bars)
    assert 'height="10"' in drawn(told)
    grown = gang(fault(3, 150), shrunk, roles=[{"name": "worker", "desired": 4}], size={"attempt": 3})
    bars = story(grown, BEGAN + 250).rows[0].bars
    assert [(bar.attempt, bar.share) for bar in bars if bar.kind is Activity.RUNNING] == [(1, 1), (2, 0.75), (3, 1)]
