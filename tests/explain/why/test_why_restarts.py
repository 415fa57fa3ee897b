"""Why a gang restarted: cause, decision, cost, what the restarts of a night have in common, and other rules."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import LedgerEntry
from gangctl.api.model import changed
from gangctl.api.scheduling import ReplicaGroup
from gangctl.api.status import RestartCounts
from gangctl.explain.why.restarts import Pattern, gang_restarts
from tests.cli.here import manifest
from tests.cli.tracecases import BEGAN, cause, incident

NOW = BEGAN + 3600


def gang(*incidents: dict[str, Any], rules: list[dict[str, Any]] | None = None) -> GangJob:
    made = manifest(podFailurePolicy={"rules": rules or []})
    made["metadata"] = {"name": "demo", "namespace": "research", "uid": "u"}
    status = {"phase": "Running", "attempt": 9, "incidents": list(incidents)}
    return GangJob.model_validate({**made, "status": status})


def charged(*minutes: int, attempt: int = 2) -> tuple[LedgerEntry, ...]:
    """Entries of the ledger, for attempts in a row from this one."""
    return tuple(
        LedgerEntry(time=BEGAN + 60 * at, attempt=attempt + number, charged=True, progressed=True)
        for number, at in enumerate(minutes)
    )


def failure(at: int, **more: Any) -> dict[str, Any]:
    """An incident ``at`` minutes after the first, of exit code 1."""
    found = {"reason": "ExitCode", "exitCode": 1, "signal": None, "message": "exit code 1", "node": f"node-{at}"}
    told = cause(**{**found, **more, "time": BEGAN + 60 * at})
    return incident(
        at + 2, cause={key: value for key, value in told.items() if value is not None}, time=BEGAN + 60 * at
    )


def patterns(*found: dict[str, Any]) -> dict[str, Pattern]:
    told = gang_restarts(gang(*found), NOW)
    assert told is not None
    return {one.what: one for one in told.patterns}


def test_the_last_restart_is_told_with_cause_decision_phases_and_cost() -> None:
    told = gang_restarts(gang(incident()), NOW)
    assert told is not None
    last = told.last.incident
    assert (last.attempt, last.reason, last.level, last.charged) == (2, "Signal", "Process", True)
    assert last.cause == "worker-1 (rank 1): ended by SIGKILL in attempt 1"
    assert told.last.level_because == "that is the default of Signal"
    assert last.cost == "restarted from step 50; 5 steps were lost, 1.25 s of training"
    assert [(one.kind, round(1000 * one.seconds)) for one in last.phases][1:3] == [("stop", 111), ("barrier", 8)]
    assert last.milliseconds == 2460
    assert (last.restored_step, last.lost_steps, last.lost_seconds) == (50, 5, 1.25)


def test_the_budget_is_that_of_now_and_a_replica_group_s_is_told_beside_it() -> None:
    made = gang(incident())
    made = changed(made, status=changed(made.status, ledger=charged(-30, 10, 20)))
    told = gang_restarts(made, NOW)
    assert told is not None
    assert told.budget == "2 of 10 charged restarts in 3600 s"
    group = ReplicaGroup.model_validate({"name": "g", "budget": {"maxRestarts": 2, "windowSeconds": 7200}})
    told = gang_restarts(changed(made, spec=changed(made.spec, replica_group=group)), NOW)
    assert told is not None
    assert told.budget == (
        "2 of 10 charged restarts in 3600 s; of its replica group's budget, it has used 3 of 2 charged restarts in "
        "7200 s"
    )


def test_restarts_of_which_only_the_ledger_knows_count_and_the_cost_is_of_the_others() -> None:
    made = gang({**failure(12), "lostStepsAtMost": 9}, {**failure(11), "lostSteps": None})
    status = changed(made.status, ledger=charged(*range(13)), restarts=RestartCounts(counted=13))
    told = gang_restarts(changed(made, status=status), NOW)
    assert told is not None
    assert (told.count, told.charged, told.detailed, told.complete) == (13, 13, 2, True)
    assert (told.lost_steps, told.lost_steps_at_most, told.lost_unknown) == (5, 9, True)
    told = gang_restarts(changed(made, status=changed(status, restarts=RestartCounts(counted=14))), NOW)
    assert told is not None
    assert not told.complete


def test_where_a_member_hung_and_which_checkpoints_were_given_up_are_told() -> None:
    stacks = {"member": "worker-1", "text": "process 7 (python3)\n  Python:\n    all_reduce (dist.py:12)"}
    made = gang({**failure(0, reason="Hang", exitCode=None, message="no step for 60 s"), "stacks": stacks})
    rejected = ({"tier": "shared", "step": 30, "marker": "m"},)
    job = GangJob.model_validate(
        {
            **made.model_dump(by_alias=True),
            "status": {**made.status.model_dump(by_alias=True), "rejectedSteps": rejected},
        }
    )
    told = gang_restarts(job, NOW)
    assert told is not None
    assert "worker-1 was in all_reduce (dist.py:12)" in told.last.incident.evidence
    assert told.last.rejected_steps == ("step 30 of tier shared",)


def test_a_gang_without_incidents_has_nothing_to_tell() -> None:
    assert gang_restarts(gang(), NOW) is None


def test_five_restarts_of_one_member_on_several_nodes_suspect_the_member_and_not_a_node() -> None:
    found = patterns(*(failure(at) for at in reversed(range(5))))
    assert (found["member"].value, found["member"].count, found["member"].of) == ("worker-1", 5, 5)
    assert found["cause"].value == "ExitCode, exit code 1"
    assert "node" not in found


def test_several_members_on_one_node_suspect_the_node() -> None:
    found = patterns(*(failure(at, member=f"worker-{at}", node="node-bad") for at in reversed(range(3))))
    assert found["node"].value == "node-bad"
    assert "kubectl cordon" in found["node"].means
    assert "differentMembers" in found


def test_a_script_that_fails_everywhere_suspects_neither_member_nor_node() -> None:
    found = patterns(*(failure(at, alike=True, node="localhost") for at in (2, 1, 0)))
    assert sorted(found) == ["cause", "everyMember"]
    assert "look at the script" in found["everyMember"].means


def test_the_only_node_there_is_is_not_suspected() -> None:
    here = [failure(at, member=f"worker-{at}", node="localhost") for at in (2, 1, 0)]
    assert "node" not in patterns(*here)
    told = gang_restarts(gang(*here), NOW)
    assert told is not None
    assert told.last.incident.evidence == ()


def test_restarts_that_have_nothing_in_common_have_no_pattern_but_the_bug_of_a_script() -> None:
    found = patterns(failure(1, member="worker-0", exitCode=7), failure(0, member="worker-2", exitCode=1))
    assert list(found) == ["differentMembers"]
    assert "a bug of the script" in found["differentMembers"].means


def test_restarts_without_a_step_at_the_same_restore_point_are_told() -> None:
    again = [{**failure(at), "lostSteps": 0, "linkedTraceID": "1" * 32} for at in (2, 1, 0)]
    assert patterns(*again)["step"].value == "50"


def test_neither_data_nor_a_checkpoint_is_blamed_where_a_rank_fails_after_others_have_finished() -> None:
    ends = [failure(2), failure(1), {**failure(0), "lostSteps": 0}]
    made = gang(*ends).model_dump(by_alias=True)
    told = [("2026-01-31T12:00:01Z", 2, True), ("2026-01-31T12:01:01Z", 3, None), ("2026-01-31T12:02:01Z", 4, None)]
    ledger = [{"time": time, "attempt": at, "charged": True, "progressed": one} for time, at, one in told]
    roles = [{"name": "worker", "indexes": "0"}]
    for attempt, means in (
        (8, "worker-0 had finished: see what it still needs of that"),
        (7, "its pod or node is faulty, or its share of the data: gangctl replaces the pod (recovery.replaceAfter)"),
    ):
        finished = {"attempt": attempt, "time": BEGAN + 120, "roles": roles}
        status = {**made["status"], "phase": "Failed", "startedAttempt": 8, "ledger": ledger, "finished": finished}
        found = gang_restarts(GangJob.model_validate({**made, "status": status}), NOW)
        assert found is not None
        assert {one.what: one.means for one in found.patterns} == {
            "member": means,
            "cause": "one rule of podFailurePolicy could decide for all of them",
        }


@pytest.mark.parametrize(
    ("progressed", "told"),
    [((False, False, True), (2, 3)), ((True, True, False), None), ((None, None, None), None), ((), None)],
)
def test_that_no_step_lay_between_is_told_only_of_attempts_that_are_known_to_have_made_none(
    progressed: tuple[bool | None, ...], told: tuple[int, int] | None
) -> None:
    made = gang(*({**failure(at), "linkedTraceID": "1" * 32} for at in (2, 1, 0)))
    ledger = [
        {"time": "2026-01-01T00:00:00Z", "attempt": at, "charged": True, "progressed": one}
        for at, one in zip((4, 3, 2), progressed, strict=False)
    ]
    status = {**made.model_dump(by_alias=True)["status"], "ledger": ledger}
    found = gang_restarts(GangJob.model_validate({**made.model_dump(by_alias=True), "status": status}), NOW)
    assert found is not None
    assert next(((one.count, one.of) for one in found.patterns if one.what == "noStep"), None) == told


def test_restarts_of_yesterday_and_those_by_hand_are_not_counted_with_those_of_tonight() -> None:
    old = {**failure(0), "time": BEGAN - 50_000}
    told = gang_restarts(gang(failure(2), failure(1), old), NOW)
    assert told is not None
    assert (told.count, told.charged, told.lost_steps, told.milliseconds, told.first_steps) == (2, 2, 10, 4920, 2)
    by_hand = failure(1, reason="RestartRequested", member="", exitCode=None, message="restartToken was changed")
    assert patterns(by_hand, failure(0)) == {}


def test_other_rules_are_tried_with_the_controller_s_own_policy() -> None:
    told = gang_restarts(gang(failure(0)), NOW)
    assert told is not None
    tried = {(one.action, one.level): one for one in told.last.alternatives}
    assert set(tried) == {("Count", "Pod"), ("Ignore", "Process"), ("FailJob", "Process")}
    pod = tried["Count", "Pod"]
    assert pod.rule == "{action: Count, level: Pod, onExitCodes: {operator: In, values: [1]}}"
    assert pod.outcome == "the pod of worker-1 would have been replaced, charged"
    assert tried["FailJob", "Process"].outcome == "the gang would have failed"


def test_what_the_rule_that_matched_has_done_is_no_alternative() -> None:
    rule = {"name": "mine", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}
    failed = {**failure(0, rule="mine", action="FailJob", why="exit code 1 is in [1]"), "outcome": "Failed"}
    told = gang_restarts(gang(failed, rules=[rule]), NOW)
    assert told is not None
    assert told.last.rule == "mine: exit code 1 is in [1]"
    assert "FailJob" not in {one.action for one in told.last.alternatives}
    assert ("Count", "Process") in {(one.action, one.level) for one in told.last.alternatives}


@pytest.mark.parametrize(
    ("found", "matcher"),
    [
        ({"reason": "NodeLost", "exitCode": None, "message": "gone"}, "onReasons: [NodeLost]"),
        ({"reason": "Signal", "exitCode": None, "signal": "SIGBUS"}, "onSignals: [SIGBUS]"),
        ({"reason": "OOMKilled", "exitCode": None, "signal": "SIGKILL"}, "onReasons: [OOMKilled]"),
    ],
)
def test_a_rule_matches_by_what_the_cause_is(found: dict[str, Any], matcher: str) -> None:
    told = gang_restarts(gang(failure(0, **found)), NOW)
    assert told is not None
    assert all(matcher in one.rule for one in told.last.alternatives)
    assert told.last.alternatives


@pytest.mark.parametrize("reason", ["RestartRequested", "RestorePointMissing", "FromTheFuture"])
def test_a_cause_that_no_rule_can_match_has_no_alternatives(reason: str) -> None:
    told = gang_restarts(gang(failure(0, reason=reason, exitCode=None)), NOW)
    assert told is not None
    assert told.last.alternatives == ()


BLAMES = {"member": "worker-1", "charged": True}
SPEC: dict[str, Any] = {
    "checkpoint": {"fallbackAfter": 2, "tiers": [{"name": "t", "scope": "Shared", "source": {"type": "API"}}]}
}


def because(found: dict[str, Any], *before: int, **spec: Any) -> str:
    """Why the incident has its level, after faults of the same member in these attempts."""
    job = gang(found).model_dump(by_alias=True)
    ledger = [{**BLAMES, "time": BEGAN - 60 + at, "attempt": at} for at in before]
    job["status"]["ledger"] = ledger
    job["spec"] = {**job["spec"], **spec}
    told = gang_restarts(GangJob.model_validate(job), NOW)
    assert told is not None
    return told.last.level_because


@pytest.mark.parametrize(
    ("more", "level", "before", "spec", "told"),
    [
        ({"rule": "mine", "level": "Pod"}, "Pod", (), {}, "rule mine asks for it"),
        ({"level": "Pod"}, "Pod", (), {}, "the fault itself asks for it"),
        ({}, "Pod", (1, 2), {}, "it was the 3rd fault of worker-1 with this pod (recovery.replaceAfter: 2)"),
        ({}, "Pod", (1, 2), SPEC, "it was the 3rd fault of worker-1 with this pod (recovery.replaceAfter: 2)"),
        ({"incarnation": 1}, "Pod", (1, 2), SPEC,
         "the gang failed again and again from one restore point without progress (checkpoint.fallbackAfter: 2)"),
        ({}, "Pod", (), {}, "stronger evidence asked for it before"),
        ({}, "Gang", (), {},
         "too many members needed a new pod, or did not get ready in time (recovery.barrierTimeoutSeconds)"),
        ({"reason": "RestorePointMissing", "exitCode": None}, "Process", (), {},
         "most members did not see the checkpoint, so no pod is to blame"),
        ({"reason": "PodFailed", "alike": True}, "Process", (), {}, "every member ended alike, so no pod is to blame"),
        ({"reason": "FromTheFuture"}, "Process", (), {}, "that is the default of FromTheFuture"),
    ],
)  # fmt: skip
def test_what_asked_for_the_level_is_told_exactly(
    more: dict[str, Any], level: str, before: tuple[int, ...], spec: dict[str, Any], told: str
) -> None:
    assert because({**failure(1, **more), "level": level}, *before, **spec) == told
