"""Checks before an attempt: what they cost, whom they blame, and for how long they are waited for."""

from __future__ import annotations

import pytest

from gangctl.api.model import changed
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang
from gangctl.core.policy.cause import manual_cause
from gangctl.core.policy.checkpoints import verified_until
from gangctl.core.policy.checks import AskCheck, is_unclear
from tests.core.scenario import sentence
from tests.core.world import World

CHECKED = """
roles: [{name: worker, replicas: 3}]
recovery: {barrierTimeoutSeconds: 10, checks: [{name: disk, when: Fault, command: [probe], timeoutSeconds: 100}]}
"""
SAVES = """
roles: [{name: worker, replicas: 3}]
checkpoint:
  fallbackAfter: 1
  tiers: [{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}]
recovery: {replaceAfter: 100, checks: [{name: disk, when: Fault, command: [probe]}]}
"""
TRAINED = """
roles: [{{name: worker, replicas: 4}}]
checkpoint: {{tiers: [{{name: shared, scope: Shared, source: {{type: Directory, directory: /c, layout: TorchDCP}}}}]}}
recovery: {{replaceAfter: 100, checks: [{{name: sums, {check}}}]}}
"""
VERIFIED = """
roles: [{name: worker, replicas: 2}]
checkpoint:
  restore: {trust: Verified}
  tiers: [{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}]
recovery: {replaceAfter: 100, checks: CHECKS}
"""
SUSPECTED = """
roles: [{name: worker, replicas: 4}]
recovery: {checks: [{name: disk, when: Suspect, command: [probe]}]}
"""


def says(made: World, *sentences: str) -> None:
    for one in sentences:
        sentence(made, one)
    while made.decide().status is not None:
        pass


def checking(spec: str = CHECKED) -> World:
    """A gang whose check runs after a fault that names no culprit."""
    made = World()
    made.submit(spec)
    says(made, "the gang runs", "everyone runs")
    says(made, "worker-0 ends with SIGABRT")
    says(made, "everyone is Ready")
    assert made.job.status.checks is not None
    assert made.job.status.checks.check == "disk"
    return made


def test_a_failed_check_blames_no_checkpoint_and_is_charged_once() -> None:
    made = World()
    made.submit(SAVES)
    says(made, "every pod starts", "everyone is Ready")
    says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10 20", "everyone runs")
    says(made, "everyone runs")
    for number in range(4):
        attempt = made.job.status.attempt
        says(made, "worker-0 ends with SIGABRT")
        says(made, "everyone is Ready", "a scan finds shared 10 20", "70 s pass")
        says(made, "worker-1 fails check disk: slow", "everyone passes check disk")
        assert [(one.member, one.required) for one in made.job.status.replaced] == [("worker-1", True)]
        says(made, f"the pod of worker-1.{number} has ended", f"the pod of worker-1.{number} is removed")
        says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10 20")
        says(made, "everyone runs")
        status = made.job.status
        assert (status.phase, status.attempt) == (GangPhase.RUNNING, attempt + 1)
        assert status.restore_point is not None
        assert status.restore_point.step == 20, "fallbackAfter is 1, and no attempt has made a step"
        assert status.incidents[0].cause.reason == "CheckFailed"
        assert status.ledger[-1].member == "worker-1"
        assert status.ledger[-1].progressed is None
    assert made.job.status.restarts.counted == 4


def trained(check: str) -> World:
    """A gang that began with step 10, has made 35 and saved 30, and has failed for an unclear cause."""
    made = World()
    made.submit(TRAINED.format(check=check))
    says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10")
    says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10", "everyone runs")
    says(made, "everyone runs", "worker-0 reports step 35")
    return made


@pytest.mark.parametrize(
    ("check", "ends", "restored", "checked"),
    [
        ("when: Fault, builtin: MatMul", (), 30, 30),
        ("when: Fault, command: [probe]", (), 30, 10),
        ("when: Fault, command: [probe], verifiesAfterSteps: 10", (), 30, 25),
        ("when: Fault, builtin: MatMul", ("worker-1 can't tell check sums",), 30, 10),
        ("when: Suspect, builtin: MatMul", (), 30, 10),
        ("when: Fault, builtin: MatMul", ("worker-1 computes wrongly in check sums",), 10, 10),
        ("when: Fault, builtin: MatMul", ("worker-1 fails check sums",), 30, 10),
        ("when: Fault, builtin: MatMul, onFailure: Note", ("worker-1 computes wrongly in check sums",), 30, 10),
    ],
)
def test_only_wrong_results_blame_checkpoints_and_only_a_pass_of_all_verifies_them(
    check: str, ends: tuple[str, ...], restored: int, checked: int
) -> None:
    made = trained(check)
    says(made, "worker-0 ends with SIGABRT")
    says(made, "everyone is Ready", "a scan finds shared 10 20 30")
    says(made, *ends, "everyone passes check sums")
    if made.job.status.phase is GangPhase.GATHERING:
        says(made, "the pod of worker-1.0 has ended", "worker-1.1 starts on node-b")
        says(made, "worker-1.1 is Ready", "5 s pass", "a scan finds shared 10 20 30")
    status = made.job.status
    assert (status.phase, status.corrupt_since) == (GangPhase.RUNNING, None)
    assert status.restore_point is not None
    assert (status.restore_point.step, status.checked_step) == (restored, checked)
    assert verified_until(Gang(made.now, made.job, made.observed())) == checked, (
        "a pass says nothing of what is made after it"
    )


def test_a_pass_does_not_verify_what_a_pod_has_made_that_is_gone() -> None:
    made = trained("when: Fault, builtin: MatMul")
    says(made, "the pod of worker-0.0 has ended")
    says(made, "worker-0.1 starts on node-b", "worker-0.1 is Ready", "everyone is Ready")
    says(made, "a scan finds shared 10 20 30", "everyone passes check sums")
    status = made.job.status
    assert status.restore_point is not None
    assert (status.restore_point.step, status.checked_step) == (30, 10)
    assert [one.result for one in status.incidents[0].checks] == ["Passed"]


def test_wrong_results_in_a_pod_that_ran_no_worker_blame_no_checkpoint() -> None:
    made = World()
    made.submit(TRAINED.format(check="when: NewPod, builtin: MatMul"))
    says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10")
    says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10")
    says(made, "worker-1 computes wrongly in check sums", "everyone passes check sums")
    assert [one.member for one in made.job.status.replaced] == ["worker-1"]
    assert made.job.status.corrupt_since is None


def test_a_check_that_ended_by_a_clock_that_was_ahead_is_no_wait_without_end() -> None:
    made = checking()
    says(made, "worker-1 fails check disk: slow", "everyone passes check disk")
    says(made, "the pod of worker-1.0 has ended", "a new controller starts, whose clock is 86400 s behind")
    says(made, "worker-0 connects again", "worker-2 connects again", "worker-1.1 starts on node-b")
    for _ in range(20):
        says(made, "10 s pass")
    assert made.job.status.barrier_timeouts > 0


def test_a_check_names_the_nodes_where_each_member_has_passed() -> None:
    for ends, result, nodes in (
        ("worker-2 passes check disk", "Passed", ("node-worker-2",)),
        ("worker-2 can't tell check disk", "Passed", ()),
        ("200 s pass", "Undecided", ()),
    ):
        made = World()
        made.submit(SUSPECTED)
        says(made, "the gang runs")
        says(made, "worker-2 ends with 3")
        says(made, "everyone is Ready")
        says(made, ends)
        (found,) = made.job.status.incidents[0].checks
        assert (found.result, found.nodes) == (result, nodes)


def test_each_attempt_is_checked_anew() -> None:
    made = checking()
    says(made, "everyone passes check disk")
    says(made, "everyone runs", "worker-0 reports step 1", "worker-1 ends with SIGABRT")
    says(made, "everyone is Ready")
    assert made.job.status.phase is GangPhase.GATHERING
    assert made.job.status.checks is not None
    assert (made.job.status.checks.attempt, made.job.status.checks.check) == (3, "disk")


def test_a_failure_is_not_forgotten_when_another_member_begins_again() -> None:
    made = checking()
    says(made, "worker-0 passes check disk", "worker-1 fails check disk: slow")
    says(made, "the container of worker-2 starts again", "worker-2 is Ready")
    assert made.job.status.checks is not None
    assert made.job.status.checks.turn == 2
    says(made, "worker-1 fails check disk: slow", "everyone passes check disk")
    assert made.job.status.incidents[0].cause.member == "worker-1"


def test_the_time_of_a_check_is_granted_and_no_more() -> None:
    made = checking()
    says(made, "90 s pass", "worker-1 loses its connection", "5 s pass")
    assert made.job.status.barrier_timeouts == 0
    says(made, "16 s pass")
    assert made.job.status.barrier_timeouts == 1


def test_a_member_that_was_away_has_the_whole_time_again() -> None:
    made = checking()
    says(made, "worker-0 passes check disk", "worker-2 passes check disk")
    says(made, "worker-1 loses its connection", "100 s pass", "worker-1 connects again", "50 s pass")
    assert str(made.job.status.phase) == "Gathering"
    says(made, "worker-1 passes check disk")
    assert str(made.job.status.phase) == "Running"
    assert made.job.status.incidents[0].checks[0].result == "Passed"


def test_a_new_leader_gives_the_whole_time_again() -> None:
    made = checking()
    says(made, "100 s pass", "a new controller starts", "everyone connects again", "100 s pass")
    assert made.job.status.phase is GangPhase.GATHERING
    says(made, "20 s pass")
    assert made.job.status.incidents[0].checks[0].result == "Undecided"


def test_what_looks_like_a_secret_is_masked() -> None:
    made = checking()
    says(made, "worker-1 fails check disk: API_TOKEN=abcdef0123456789", "everyone passes check disk")
    assert "abcdef" not in made.job.status.model_dump_json()
    assert "API_TOKEN" in made.job.status.model_dump_json()


def test_a_check_that_the_user_removes_is_waited_for_no_longer() -> None:
    made = checking()
    recovery = changed(made.job.spec.recovery, checks=())
    made.job = changed(made.job, spec=changed(made.job.spec, recovery=recovery))
    says(made)
    assert made.job.status.phase is GangPhase.RUNNING


def test_a_fault_that_is_known_by_then_ends_the_check() -> None:
    made = checking()
    says(made, "device gpu-0 of worker-2 is Unhealthy")
    assert made.job.status.incidents[0].cause.reason == "DeviceLost"
    says(made, "every pod starts", "everyone is Ready")
    assert made.job.status.phase is GangPhase.RUNNING
    assert made.job.status.incidents[0].checks == ()


def test_a_cause_is_unclear_if_it_is_not_known_who_failed_first() -> None:
    made = World()
    cause = changed(manual_cause(Gang(made.now, made.job, made.observed())), reason="ExitCode", exit_code=1)
    assert not is_unclear(cause)
    for other in (
        changed(cause, tied=("worker-0", "worker-1")),
        changed(cause, alike=True),
        changed(cause, suspect="worker-1.0"),
        changed(cause, reason="Hang"),
    ):
        assert is_unclear(other)


def test_a_check_of_mounts_looks_at_the_folders_of_the_tiers_unless_it_names_others() -> None:
    for args, asked in (((), ("--tier=/c",)), (("--read-only",), ("--read-only", "--tier=/c")), (("--path=/x",), None)):
        made = World()
        check = f"builtin: Mount, args: [{', '.join(args)}]"
        made.submit(SAVES.replace("when: Fault, command: [probe]", f"when: Start, {check}"))
        for _ in range(2):
            says(made, "every pod starts", "everyone is Ready")
        queries = {one.check.args for one in made.plan().actions if isinstance(one, AskCheck)}
        assert queries == {args if asked is None else asked}


def verified(checks: str = "[]") -> World:
    """A gang at step 350, whose first worker has verified step 300, and the other one step 100."""
    made = World()
    made.submit(VERIFIED.replace("CHECKS", checks))
    says(made, "every pod starts", "everyone is Ready")
    says(made, "every pod starts", "everyone is Ready", "a scan finds shared 10", "everyone runs")
    says(made, "everyone runs", "worker-0 reports step 350")
    says(made, "worker-0 verifies checkpoint 300", "worker-1 verifies checkpoint 100")
    return made


def restored(made: World, steps: str) -> int:
    """Let all be Ready, and a scan find these steps; the step that the next attempt restores."""
    says(made, "everyone is Ready")
    says(made, f"a scan finds shared {steps}")
    assert made.job.status.phase is GangPhase.RUNNING
    assert made.job.status.restore_point is not None
    return made.job.status.restore_point.step


def test_a_step_is_verified_still_when_the_pod_that_verified_it_is_gone() -> None:
    made = verified()
    says(made, "device gpu-1 of worker-0 is Unhealthy")
    says(made, "the pod of worker-0.0 has ended", "worker-0.1 starts on node-b", "worker-0.1 is Ready")
    made.heard.pop("worker-0.0", None)
    assert restored(made, "100 300 350") == 300


def test_a_step_is_verified_no_more_when_it_was_undone() -> None:
    made = verified()
    says(made, "worker-1 ends with 1")
    assert restored(made, "100") == 100
    says(made, "worker-1 runs", "worker-1 reports step 350")  # Until it runs, worker-0 says what it said before.
    says(made, "worker-1 ends with 1")
    assert restored(made, "100 300") == 100


def test_a_check_that_passes_later_verifies_no_step_that_was_undone() -> None:
    made = verified("[{name: sums, when: Fault, builtin: MatMul}]")
    says(made, "device gpu-1 of worker-0 is Unhealthy")
    says(made, "the pod of worker-0.0 has ended", "worker-0.1 starts on node-b", "worker-0.1 is Ready")
    assert restored(made, "100 300 350") == 300
    says(made, "everyone runs", "worker-1 reports step 320")
    says(made, "worker-1 ends with SIGABRT")
    says(made, "everyone is Ready")
    says(made, "everyone passes check sums")
    assert restored(made, "100 300 350") == 300
    assert made.job.status.checks is not None
    assert [one.result for one in made.job.status.checks.results] == ["Passed"]


def test_the_first_of_several_steps_that_are_not_trusted_counts() -> None:
    made = World()
    says(
        made,
        "the gang runs",
        "worker-0 finds corruption since step 150: NaN",
        "worker-1 finds corruption since step 180: NaN",
    )
    assert made.job.status.corrupt_since == 150


def test_the_pod_of_the_rank_that_computes_wrongly_is_replaced_and_not_that_of_the_rank_that_says_so() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 3}]")
    says(made, "the gang runs", "worker-0 finds corruption since step 10 in rank 2: its gradients differ")
    says(made, "everyone is Ready")
    assert [one.member for one in made.job.status.replaced] == ["worker-2"]
