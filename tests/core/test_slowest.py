"""The members that an incident lists: eight at most, by rule, and never with a negative time."""

from __future__ import annotations

from gangctl.api.status import GangPhase, Incident, Status
from gangctl.core import slowest
from gangctl.core.goodput import total
from gangctl.core.tracing import trace_id
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


def test_each_later_phase_has_a_place_of_its_own_and_no_more_than_eight_are_listed() -> None:
    made = restarted()
    for at in range(WORKERS):
        sentence(made, f"worker-{at} has loaded the restore point within {100 + at} ms")
        sentence(made, f"worker-{at} reports step 1")
        sentence(made, "0.1 s pass")
    sentence(made, "31 s pass")
    decided(made)
    listed = [(one.phase, one.member) for one in newest(made).members][slowest.AT_SETTLING :]
    assert listed == [("Start", "worker-11"), ("FirstStep", "worker-11"), ("CheckpointLoad", "worker-11")]
    assert len(newest(made).members) == slowest.LISTED


def test_members_that_have_not_told_their_first_step_are_waited_for_a_moment_only() -> None:
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


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
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


def test_what_happens_long_after_a_restart_does_not_belong_to_its_incident() -> None:
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
