"""What a worker printed last, in the status: when it is stored, what is told anew, and how much is kept."""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.incident import Output
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.policy.cause import describe
from gangctl.core.record import conditions
from tests.core.scenario import sentence
from tests.core.test_bounds import fullest
from tests.core.world import World

ERROR = "RuntimeError: no dataset at /data"


def play(world: World, *lines: str) -> None:
    for line in lines:
        sentence(world, line)


def failed(*, printed: str = "", spec: str = "{recovery: {budget: {type: Unlimited}, replaceAfter: 100}}") -> World:
    """Attempt 1 has failed, and attempt 2 gathers."""
    world = World()
    world.submit(spec)
    play(world, "the gang runs")
    fail(world, printed)
    return world


def fail(world: World, printed: str = "") -> None:
    play(world, "everyone runs", "worker-1 ends with 1", "decide")
    if printed:
        play(world, f"the log of worker-1 ends with {printed}")


def told(status: Status) -> list[str]:
    return [one.message for one in status.conditions if one.type == "Ready"]


def test_each_place_that_tells_the_cause_has_the_line() -> None:
    world = failed(printed=ERROR)
    play(world, "everyone is Ready")
    plan = world.decide()
    quoted = f'worker-1: exit code 1, printed "{ERROR}"'
    assert quoted in plan.because
    assert quoted in world.job.status.message
    assert quoted in told(world.job.status)[0]
    assert [quoted in one.message for one in plan.events] == [True]
    assert describe(world.job.status.incidents[0].cause) == quoted
    assert world.job.status.incidents[0].output == Output(member="worker-1", text=ERROR)


def test_of_a_process_that_sigkill_ended_only_an_exception_is_quoted() -> None:
    for is_error in (False, True):
        world = World()
        world.submit("{}")
        play(world, "the gang runs", "everyone runs", "worker-1 ends with SIGKILL", "decide")
        play(world, f"the log of worker-1 ends with {ERROR}", "everyone is Ready")
        read = world.output
        assert read is not None
        world.output = replace(read, printed=replace(read.printed, is_error=is_error))
        world.decide()
        last = world.job.status.incidents[0]
        assert (last.cause.printed, last.output) == (ERROR if is_error else "", Output(member="worker-1", text=ERROR))


def test_a_line_that_comes_late_is_told_once_with_its_trace() -> None:
    world = failed()
    play(world, "everyone is Ready", "decide")
    before = told(world.job.status)[0]
    play(world, f"the log of worker-1 ends with {ERROR}", "2 s pass")
    plan = world.decide()
    (event,) = plan.events
    incident = world.job.status.incidents[0]
    assert (event.type, event.reason, event.member) == ("Normal", Reason.WORKER_OUTPUT, "worker-1")
    assert event.message == f'attempt 1 ended: worker-1: exit code 1, printed "{ERROR}"'
    assert (str(event.pod), event.trace_id) == ("g-worker-1-0", incident.trace_id)
    assert told(world.job.status)[0] == before.replace("exit code 1", f'exit code 1, printed "{ERROR}"')
    assert world.decide().status is None


def test_a_restart_in_the_meantime_stores_what_came_late() -> None:
    world = failed()
    play(world, "everyone is Ready", "decide", f"the log of worker-1 ends with {ERROR}", "everyone runs")
    play(world, "worker-0 ends with 1")
    plan = world.decide()
    assert world.job.status.attempt == 3
    assert [one.cause.printed for one in world.job.status.incidents] == ["", ERROR]
    assert [one.reason for one in plan.events] == [Reason.RESTARTING, Reason.WORKER_OUTPUT]


def test_a_gang_that_gathers_for_long_shows_it_meanwhile() -> None:
    world = failed(printed=ERROR)
    assert world.decide().status is None
    play(world, "10 s pass")
    plan = world.decide()
    assert world.job.status.incidents[0].cause.printed == ERROR
    assert Reason.WORKER_OUTPUT not in {one.reason for one in plan.events}, "the restart will tell it"
    play(world, "everyone is Ready")
    assert ERROR in world.decide().because


def test_a_log_that_tells_nothing_changes_nothing() -> None:
    world = failed(printed=" ")
    before = world.job.status.incidents
    play(world, "20 s pass")
    world.decide()
    assert world.job.status.incidents == before


def test_the_output_of_another_attempt_or_member_is_of_another_incident() -> None:
    world = failed(printed="first")
    play(world, "everyone is Ready", "decide")
    fail(world)
    assert world.job.status.incidents[0].cause.printed == ""
    play(world, "everyone is Ready", "decide", "2 s pass", "decide")
    assert [one.cause.printed for one in world.job.status.incidents] == ["", "first"]


def test_the_newest_two_keep_the_lines_and_all_keep_the_line_that_tells_most() -> None:
    world = failed(printed="first")
    for one in ("second", "third"):
        play(world, "everyone is Ready", "5 s pass", "decide")
        fail(world, one)
    play(world, "everyone is Ready", "5 s pass", "decide")
    incidents = world.job.status.incidents
    assert [one.cause.printed for one in incidents] == ["third", "second", "first"]
    assert [one.output and one.output.text for one in incidents] == ["third", "second", None]


def test_output_is_given_up_after_stacks_and_before_anything_else() -> None:
    full = changed(fullest("n", "/p"), ledger=(), replaced=(), awaited=(), ranks=(), rejected_steps=(), conditions=())
    small = changed(full, incidents=tuple(changed(one, stacks=None) for one in full.incidents))
    assert conditions.with_size_limited(small) == small
    larger = changed(small, message="m" * (conditions.LARGEST - conditions.size(small) + len(small.message) + 1))
    plain = tuple(changed(one, output=None) for one in larger.incidents)
    assert conditions.with_size_limited(larger) == changed(larger, incidents=plain)


def test_output_that_is_stored_alone_leaves_the_status_small_and_accounts_for_the_time() -> None:
    world = failed()
    play(world, "everyone is Ready", "decide", "everyone runs", "decide", "30 s pass", "decide", "1 s pass")
    full = changed(world.job.status, hosts=("h" * (conditions.LARGEST - conditions.size(world.job.status) - 99),))
    world.job = changed(world.job, status=full)
    play(world, f"the log of worker-1 ends with {ERROR}")
    stored = world.plan().status
    assert stored is not None
    assert stored.incidents[0].cause.printed == ERROR
    assert conditions.size(stored) <= conditions.LARGEST
    assert stored.accounted_time == world.now


def test_an_event_on_a_node_which_others_may_read_does_not_have_it() -> None:
    rule = "{name: xid, action: Ignore, level: Pod, onExitCodes: {operator: In, values: [1]}}"
    world = failed(printed=ERROR, spec=f"{{podFailurePolicy: {{rules: [{rule}]}}}}")
    play(
        world, "everyone is Ready", "decide", "the pod of worker-1.0 has ended", "worker-1 starts", "everyone is Ready"
    )
    plan = world.decide()
    told = {one.reason: one.message for one in plan.events}
    assert ERROR in told[Reason.RESTARTED]
    assert told[Reason.NODE_AT_FAULT].startswith("GangJob default/g, worker-1: exit code 1; ")


def test_a_message_that_quotes_it_already_says_it_once() -> None:
    world = failed(printed=ERROR)
    cause = changed(world.job.status.incidents[0].cause, words=ERROR, printed=ERROR)
    assert describe(cause) == f"worker-1: exit code 1: {ERROR}"


def test_what_the_worker_wrote_as_its_termination_message_is_told_masked_and_in_one_line() -> None:
    world = World()
    world.submit("{recovery: {budget: {type: Unlimited}, replaceAfter: 100}}")
    play(world, "the gang runs", "everyone runs", "worker-1 ends with 1")
    (end,) = world.heard[world.newest("worker-1")].report.ends
    words = "no dataset\n\x1b[31mAPI_KEY=hunter2\n\n at /data"
    world.again("worker-1", ends=(replace(end, message=words),))
    world.decide()
    quoted = "worker-1: exit code 1: no dataset \\x1b[31mAPI_KEY=*** at /data"
    assert describe(world.job.status.incidents[0].cause) == quoted
    assert quoted in world.job.status.message


def test_an_event_on_a_node_does_not_have_what_a_worker_wrote_either() -> None:
    rule = "{name: xid, action: Ignore, level: Pod, onExitCodes: {operator: In, values: [1]}}"
    world = World()
    world.submit(f"{{podFailurePolicy: {{rules: [{rule}]}}}}")
    play(world, "the gang runs", "everyone runs", "worker-1 ends with 1")
    (end,) = world.heard[world.newest("worker-1")].report.ends
    world.again("worker-1", ends=(replace(end, message="no dataset: /data"),))
    play(world, "decide", "everyone is Ready", "decide", "the pod of worker-1.0 has ended", "worker-1 starts")
    play(world, "everyone is Ready")
    told = {one.reason: one.message for one in world.decide().events}
    assert "no dataset: /data" in told[Reason.RESTARTED]
    assert told[Reason.NODE_AT_FAULT].startswith("GangJob default/g, worker-1: exit code 1; ")
