"""The members that an incident lists: eleven at most, by rule, and never with a negative time."""

from __future__ import annotations

import pytest

from gangctl.api.incident import Incident
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import trace_id
from gangctl.core.lifecycle.running import SUMMARY_SECONDS
from gangctl.core.record import timings
from gangctl.core.record.conditions import total
from gangctl.core.record.timings import REPORT_SECONDS
from gangctl.story.spans import incident_spans
from gangsidecar.wire import Phase
from tests.core.scenario import sentence
from tests.core.world import World

WORKERS = 12


def world(lines: str, spec: str = "") -> World:
    """What has happened by then, with a decision after each line."""
    made = World()
    made.submit(f"roles: [{{name: worker, replicas: {WORKERS}}}]\n{spec}")
    for line in lines.strip().splitlines():
        sentence(made, line.strip())
    return made


def decided(made: World) -> Status:
    """The status after so many decisions that nothing more is written."""
    while made.decide().status is not None:
        pass
    return made.job.status


def newest(made: World) -> Incident:
    return made.job.status.incidents[0]


def restarted() -> World:
    """Five pods are replaced with a device's fault; the others stop one after the other, and all start likewise."""
    made = world("the gang runs\n10 s pass")
    for at in range(5):
        sentence(made, f"device gpu-0 of worker-{at} is Unhealthy")
    made.decide()
    for at in range(5, WORKERS):
        sentence(made, "1 s pass")
        sentence(made, f"worker-{at} is Ready")
    for at in range(5):
        sentence(made, "1 s pass")
        sentence(made, f"worker-{at} starts")
        sentence(made, f"worker-{at} is Ready")
        sentence(made, f"the pod of worker-{at}.0 has ended")
    decided(made)
    for at in range(WORKERS):
        sentence(made, "1 s pass")
        sentence(made, f"worker-{at} runs")
    return made


def test_at_write_2_the_cause_the_last_to_stop_and_the_last_replaced_are_listed() -> None:
    listed = [(one.part, one.phase, one.member) for one in newest(restarted()).members]
    assert listed == [
        ("Cause", "Replace", "worker-0"),
        ("Slowest", "Stop", "worker-11"),
        ("Slowest", "Stop", "worker-10"),
        ("Replaced", "Replace", "worker-4"),
        ("Replaced", "Replace", "worker-3"),
    ]


def test_each_later_phase_has_a_place_of_its_own_and_no_more_than_eleven_are_listed() -> None:
    made = restarted()
    for at in range(WORKERS):
        for milestone in ("Launch", "Imports", "Rendezvous"):
            sentence(made, f"worker-{at} has {milestone} behind it")
        sentence(made, f"worker-{at} has loaded the restore point within {100 + at} ms")
        sentence(made, f"worker-{at} reports step 1")
        sentence(made, "0.1 s pass")
    sentence(made, "31 s pass")
    decided(made)
    listed = [(one.phase, one.member) for one in newest(made).members][timings.AT_SETTLING :]
    phases = ["Start", "FirstStep", "CheckpointLoad", "Rendezvous", "Launch", "Imports"]
    assert listed == [(phase, "worker-11") for phase in phases]
    assert len(newest(made).members) == timings.MAX_LISTED


def test_timings_wait_only_a_moment_for_members_without_a_first_step() -> None:
    made = world("the gang runs\n10 s pass\nworker-1 ends with 3\ndecide\neveryone is Ready\ndecide\neveryone runs")
    sentence(made, "35 s pass")
    sentence(made, "worker-0 reports step 1")
    decided(made)
    assert newest(made).milliseconds.first_step is None
    sentence(made, "11 s pass")
    sentence(made, "31 s pass")
    decided(made)
    assert newest(made).milliseconds.first_step == 35_000
    told = newest(made)
    sentence(made, "worker-2 reports step 1")
    sentence(made, "40 s pass")
    decided(made)
    assert newest(made) == told, "an incident whose first step is stored is not told differently"


def test_no_time_is_negative_after_the_clock_is_set_back() -> None:
    made = world("the gang runs\n10 s pass\nworker-1 ends with 3\ndecide\nthe clock is set back by 3600 s")
    for line in ("everyone is Ready", "decide", "the clock is set back by 5 s", "everyone runs", "100 s pass"):
        sentence(made, line)
    status = decided(made)
    assert status.phase is GangPhase.RUNNING
    assert newest(made).members
    assert all(min(one.begin_milliseconds, one.milliseconds) >= 0 for one in newest(made).members)
    assert total(status.spent) >= 0


def test_events_and_conditions_of_an_incident_name_its_trace_and_the_reason_stays_clean() -> None:
    made = world("the gang runs\n10 s pass\nworker-1 ends with 3")
    trace = trace_id(made.job, 2)
    opening = made.decide()
    assert [event.trace_id for event in opening.events] == [trace]
    sentence(made, "everyone is Ready")
    settling = made.decide()
    assert [event.trace_id for event in settling.events] == [trace]
    ready = next(one for one in made.job.status.conditions if one.type == "Ready")
    assert ready.message == f"{settling.because} (trace {trace})"
    assert trace not in settling.because + made.job.status.message


def test_an_incident_does_not_contain_what_happens_long_after_it() -> None:
    made = world("", "recovery: {replaceAfter: 9}")
    made.submit("roles: [{name: worker, replicas: 2, spares: 1}]")
    for line in ("the gang runs", "worker-1 ends with 3", "decide", "everyone is Ready", "decide", "everyone runs"):
        sentence(made, line)
    sentence(made, "500 s pass")
    sentence(made, "the pod of worker-2 has ended")
    plan = made.decide()
    assert plan.status is not None
    assert [event.trace_id for event in plan.events] == [""]


def test_a_message_of_full_length_keeps_its_trace() -> None:
    made = world("the gang runs\n10 s pass")
    words = "so " * 2000
    sentence(made, f"worker-1 asks for a restart because {words.strip()}")
    made.decide()
    ready = next(one for one in made.job.status.conditions if one.type == "Ready")
    assert len(ready.message) == 1024
    assert ready.message.endswith(f"… (trace {trace_id(made.job, 2)})")


def listed(made: World) -> list[tuple[str, str, str, int, int]]:
    return [
        (one.part, one.phase, f"{one.member}.{one.incarnation}", one.begin_milliseconds, one.milliseconds)
        for one in newest(made).members
    ]


def restarted_once() -> World:
    """A gang of three that is in its second attempt for 20 s, every member of which has made its first step."""
    made = World()
    made.submit("roles: [{name: worker, replicas: 3}]")
    for line in ("the gang runs", "100 s pass", "worker-0 reports step 1", "worker-1 ends with 3", "decide"):
        sentence(made, line)
    for line in ("everyone is Ready", "decide", "1 s pass", "everyone runs", "2 s pass"):
        sentence(made, line)
    for at in range(3):
        sentence(made, f"worker-{at} reports step 1")
    sentence(made, "17 s pass")
    return made


def test_an_incident_lists_a_replacement_that_never_came_until_the_deadline() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 3}]\nrecovery: {replacementTimeoutSeconds: 100}")
    for line in ("the gang runs", "10 s pass", "device gpu-0 of worker-1 is Unhealthy", "decide", "3 s pass"):
        sentence(made, line)
    for line in ("worker-0 is Ready", "worker-2 is Ready", "the pod of worker-1.0 has ended", "decide", "197 s pass"):
        sentence(made, line)
    assert decided(made).phase is GangPhase.HELD
    took = newest(made).milliseconds
    assert (took.stop, took.replace, took.barrier) == (3_000, 197_000, 0)
    assert ("Cause", "Replace", "worker-1.1", 0, 200_000) in listed(made)


@pytest.mark.parametrize(
    ("spec", "what", "phase"),
    [
        ("", "suspend becomes true", GangPhase.SUSPENDED),
        ("activeDeadlineSeconds: 15", "1 s pass", GangPhase.FAILED),
        ("recovery: {budget: {type: Windowed, maxRestarts: 0}, onExhausted: Hold}", "60 s pass", GangPhase.HELD),
    ],
)
def test_an_end_lists_members_that_were_not_ready_as_awaited_until_then(spec: str, what: str, phase: GangPhase) -> None:
    made = World()
    made.submit(f"roles: [{{name: worker, replicas: 3}}]\n{spec}")
    for line in ("the gang runs", "10 s pass", "worker-1 ends with 3", "decide", "3 s pass"):
        sentence(made, line)
    for line in ("worker-0 is Ready", "worker-1 is Ready", "1 s pass", what):
        sentence(made, line)
    assert decided(made).phase is phase
    took = newest(made).milliseconds
    assert took.barrier == 0
    assert (took.stop or 0) + (took.replace or 0) == round((made.now - newest(made).time) * 1000) > 0


@pytest.mark.parametrize(
    "fault",
    [
        "the pod of worker-1 vanishes",
        "the container of worker-1 starts again",
        "the pod of worker-1 has ended: OOMKilled",
    ],
)
def test_an_incident_keeps_its_members_when_the_next_fault_takes_a_report_away(fault: str) -> None:
    made = restarted_once()
    sentence(made, fault)
    sentence(made, "decide")
    before = made.job.status.incidents[1]
    assert (before.milliseconds.start, before.milliseconds.first_step) == (1_000, 2_000)
    assert not [
        span.name for span in incident_spans(made.job, before) if span.end is None or "came first" in span.failed
    ]


def test_an_incident_lists_no_start_that_the_next_fault_cut_short() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 3}]")
    for line in ("the gang runs", "worker-1 ends with 3", "decide", "everyone is Ready", "decide", "1 s pass"):
        sentence(made, line)
    for line in ("worker-0 runs", "worker-1 runs", "the pod of worker-1 vanishes", "decide"):
        sentence(made, line)
    assert made.job.status.incidents[1].milliseconds.start is None


def test_an_incident_does_not_list_members_that_a_change_of_roles_adds() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 3}]")
    for line in ("the gang runs", "worker-1 ends with 3", "decide", "replicas of worker becomes 5", "2 s pass"):
        sentence(made, line)
    assert decided(made).phase is GangPhase.SUSPENDED
    assert [one.member for one in newest(made).members] == ["worker-1", "worker-2", "worker-0"]


def test_an_incident_lists_the_end_of_a_lost_member_and_the_wait_for_its_spare() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 2, spares: 1}]")
    for line in ("the gang runs", "10 s pass", "device gpu-0 of worker-1 is Unhealthy", "decide", "1 s pass"):
        sentence(made, line)
    for line in ("worker-0 is Ready", "1 s pass", "worker-1.0 is Done", "1 s pass", "worker-2 is Ready", "decide"):
        sentence(made, line)
    took = newest(made).milliseconds
    assert (took.stop, took.replace, took.barrier) == (3_000, None, 0)
    assert listed(made) == [
        ("Cause", "Stop", "worker-1.0", 0, 2_000),
        ("Slowest", "Stop", "worker-2.0", 0, 3_000),
        ("Slowest", "Stop", "worker-0.0", 0, 1_000),
    ]
    assert newest(made).members[0].device == "gpu-0"
    assert newest(made).members[0].node == "node-worker-1"


def test_decide_looks_again_when_the_wait_for_members_is_over() -> None:
    made = restarted_once()
    sentence(made, "worker-2 ends with 3")
    for line in ("decide", "everyone is Ready", "decide", "everyone runs", "40 s pass"):
        sentence(made, line)
    decided(made)
    sentence(made, "worker-0 reports step 1")
    after = made.decide().requeue_after
    assert after == REPORT_SECONDS
    sentence(made, f"{after} s pass")
    while (plan := made.decide()).status is None:
        assert plan.requeue_after is not None
        assert plan.requeue_after <= SUMMARY_SECONDS
        sentence(made, f"{plan.requeue_after} s pass")
    assert newest(made).milliseconds.first_step == 40_000


def test_the_start_of_a_member_is_not_the_moment_at_which_its_stop_began() -> None:
    made = restarted_once()
    made.says("worker-1", Phase.STOPPING, 2)
    sentence(made, "the pod of worker-2 vanishes")
    sentence(made, "decide")
    found = [
        one for one in made.job.status.incidents[1].members if (one.member, one.phase) == ("worker-1", "FirstStep")
    ]
    assert [(one.begin_milliseconds, one.milliseconds) for one in found] == [(1_000, 2_000)]
