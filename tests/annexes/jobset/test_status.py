"""The status of a JobSet: JobSet's own types, reasons and counts, from what its gangs say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gangctl.annexes.jobset.status import Outcome, Running, current, is_finished
from gangctl.annexes.jobset.translation import stages
from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.core.facts.world import Pod
from tests.annexes.jobset.jobsets import jobset, replicated

NOW = 1_700_000_000.0
AT = rfc3339(NOW)


def gang(document: Any, phase: str, **status: Any) -> GangJob:
    """The stored gang in this phase."""
    conditions = [
        {
            "type": kind,
            "status": "True" if is_true else "False",
            "reason": reason,
            "message": "".join(message),
            "lastTransitionTime": AT,
        }
        for kind, is_true, reason, *message in status.pop("conditions", ())
    ]
    body = {"phase": phase, "attempt": 1, "startedAttempt": 1, "conditions": conditions, **status}
    return GangJob.model_validate({**document, "status": body})


def pods(member: str, *indexes: int, ready: bool = True) -> list[Pod]:
    state = "True" if ready else "False"
    return [Pod(f"{member}-{at}", f"u-{at}", f"{member}-{at}", 0, conditions=(("Ready", state, ""),)) for at in indexes]


def outcome(found: dict[str, Any], phase: str, of_pods: Iterable[Pod] = (), **status: Any) -> Outcome:
    (stage,) = stages(found)
    return current(found, [Running(stage, gang(stage.document, phase, **status), tuple(of_pods))], NOW)


def counts(made: Outcome, name: str = "workers") -> dict[str, int]:
    """What isn't zero."""
    (found,) = (one for one in made.status["replicatedJobsStatus"] if one["name"] == name)
    return {key: one for key, one in found.items() if key != "name" and one}


def conditions(made: Outcome) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in made.status.get("conditions", ())}


def incident(member: str, **more: Any) -> dict[str, Any]:
    cause = {"reason": "ExitCode", "member": member, "time": AT, **more.pop("cause", {})}
    return {"attempt": 1, "time": AT, "cause": cause, **more}


def test_a_job_is_ready_when_all_of_its_pods_are() -> None:
    made = outcome(jobset(replicated("workers", 2, 3)), "Running", pods("workers", 0, 1, 2, 5))
    assert counts(made) == {"active": 3, "ready": 1}
    assert conditions(made) == {}
    assert made.events == ()


def test_a_job_whose_pods_wait_is_active_and_not_ready() -> None:
    assert counts(outcome(jobset(replicated("workers")), "Pending", pods("workers", 0, 1, ready=False))) == {
        "active": 1
    }


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("Running", {"active": 2, "ready": 2}), ("Failed", {"active": 1, "ready": 1, "succeeded": 1})],
)
def test_a_job_whose_members_have_finished_has_succeeded_when_its_gang_ends(phase: str, expected: Any) -> None:
    finished = {"attempt": 1, "time": AT, "roles": [{"name": "workers", "indexes": "0-2"}]}
    made = outcome(jobset(replicated("workers", 2, 2)), phase, pods("workers", 0, 1, 2, 3), finished=finished)
    assert counts(made) == expected


def test_the_jobset_completes_with_its_gang() -> None:
    found = jobset(replicated("workers", 2, 2))
    made = outcome(found, "Succeeded", pods("workers", 0, 1))
    assert conditions(made) == {"Completed": ("True", "AllJobsCompleted")}
    assert made.status["terminalState"] == "Completed"
    assert counts(made) == {"succeeded": 2}
    assert [(one.reason, one.message) for one in made.events] == [("AllJobsCompleted", "jobset completed successfully")]
    assert is_finished({**found, "status": made.status})


def test_a_finished_jobset_keeps_its_conditions_whatever_its_gang_says() -> None:
    found = jobset(replicated("workers"))
    found["status"] = outcome(found, "Succeeded").status
    again = outcome(found, "Failed")
    assert conditions(again) == {"Completed": ("True", "AllJobsCompleted")}
    assert again.events == ()


def test_the_jobset_fails_with_the_reason_that_jobset_has_for_it() -> None:
    for reason, policy, expected in (
        ("BudgetExhausted", {"maxRestarts": 2}, "ReachedMaxRestarts"),
        ("FailedByRule", {"maxRestarts": 2}, "FailJobSetFailurePolicyAction"),
        ("BudgetExhausted", None, "FailedJobs"),
    ):
        given: dict[str, Any] = {"failurePolicy": policy} if policy else {}
        found = jobset(replicated("workers", 2, 2), **given)
        failed = [("Failed", True, reason)]
        made = outcome(found, "Failed", conditions=failed, incidents=[incident("workers-3")], message="it was worn out")
        assert conditions(made) == {"Failed": ("True", expected)}
        assert made.status["terminalState"] == "Failed"
        assert made.events[0].message.endswith("(first failed job: llama-workers-1): it was worn out")
        assert made.events[0].is_warning
        assert counts(made) == {"failed": 1}


def test_restarts_are_counted_as_they_were_charged() -> None:
    made = outcome(jobset(replicated("workers")), "Running", restarts={"counted": 2, "uncounted": 1})
    assert (made.status["restarts"], made.status["restartsCountTowardsMax"]) == (3, 2)


def test_a_restart_shows_from_the_fault_until_all_jobs_are_ready() -> None:
    found = jobset(replicated("workers"))
    restarting = {"conditions": [("Restarting", True, "Restarting")], "incidents": [incident("workers-0")]}
    begun = outcome(found, "Gathering", pods("workers", 0, 1), **restarting)
    assert conditions(begun) == {"RestartingJobSet": ("True", "DefaultFailurePolicy")}
    found["status"] = begun.status
    over = outcome(found, "Running", pods("workers", 0, 1))
    assert conditions(over) == {"RestartingJobSet": ("False", "JobsReady")}


def test_a_restart_that_is_over_before_it_is_seen_has_both_of_its_events() -> None:
    found = jobset(replicated("workers"))
    found["status"] = outcome(found, "Running", pods("workers", 0, 1)).status
    over = {"incidents": [incident("workers-0")], "restarts": {"counted": 1}}
    made = outcome(found, "Running", pods("workers", 0, 1), **over)
    assert conditions(made) == {"RestartingJobSet": ("False", "JobsReady")}
    assert [one.reason for one in made.events] == ["DefaultFailurePolicy", "JobsReady"]
    found["status"] = made.status
    assert outcome(found, "Running", pods("workers", 0, 1), **over).events == ()


def test_the_name_of_the_rule_that_restarts_is_in_the_reason() -> None:
    cause = {"rule": "infra"}
    states: dict[str, Any] = {
        "conditions": [("Restarting", True, "x")],
        "incidents": [incident("workers-0", cause=cause)],
    }
    made = outcome(jobset(replicated("workers")), "Gathering", **states)
    assert conditions(made)["RestartingJobSet"] == ("True", "FailurePolicy_infra")


def test_suspension_is_a_condition_and_resuming_its_end() -> None:
    found = jobset(replicated("workers", 2, 3), suspend=True)
    suspended = outcome(found, "Suspended")
    assert conditions(suspended) == {"Suspended": ("True", "SuspendedJobs")}
    assert counts(suspended) == {"suspended": 3}
    found = jobset(replicated("workers", 2, 3)) | {"status": suspended.status}
    assert conditions(outcome(found, "Pending")) == {"Suspended": ("False", "ResumeJobs")}


def test_an_unchanged_gang_changes_nothing() -> None:
    found = jobset(replicated("workers"), suspend=True)
    found["status"] = outcome(found, "Suspended").status
    again = outcome(found, "Suspended")
    assert again.status == found["status"]
    assert again.events == ()


def test_what_the_cluster_refuses_is_a_condition_until_it_takes_it() -> None:
    found = jobset(replicated("workers"))
    refusal = outcome(found, "Pending", conditions=[("Accepted", False, "TemplateRefused")])
    assert conditions(refusal) == {}, "a refusal without a text is none"
    (stage,) = stages(found)
    made = current(found, [Running(stage, None)], NOW, "the worker needs a command")
    assert conditions(made) == {"Accepted": ("False", "Unsupported")}
    assert made.events[0].is_warning
    found["status"] = made.status
    assert current(found, [Running(stage, None)], NOW + 9, "the worker needs a command").status == found["status"]
    assert conditions(outcome(found, "Running")) == {"Accepted": ("True", "Accepted")}


def test_what_the_cluster_refuses_of_a_gangs_pods_has_the_paths_of_the_jobset() -> None:
    found = jobset(replicated("none", 0), replicated("workers"))
    why = "spec.roles[0].template.spec.hostname: a number"
    made = outcome(found, "Pending", conditions=[("Accepted", False, "TemplateRefused", why)])
    assert made.events[0].message == "spec.replicatedJobs[1].template.spec.template.spec.hostname: a number"


def test_what_can_never_be_run_has_failed() -> None:
    made = current(jobset(replicated("workers")), [], NOW, "spec.startupPolicy: no")
    assert conditions(made) == {"Accepted": ("False", "Unsupported"), "Failed": ("True", "Unsupported")}
    assert made.status["terminalState"] == "Failed"
    assert current(jobset(), [], NOW, "no pods").status["replicatedJobsStatus"] == []


def test_a_reason_has_only_what_a_condition_can_have() -> None:
    states: dict[str, Any] = {
        "conditions": [("Restarting", True, "x")],
        "incidents": [incident("workers-0", cause={"rule": "rules[0]"})],
    }
    made = outcome(jobset(replicated("workers")), "Gathering", **states)
    assert conditions(made)["RestartingJobSet"] == ("True", "FailurePolicy_rules_0")


def test_jobs_without_pods_are_done() -> None:
    made = outcome(jobset(replicated("workers"), replicated("none", 0, 3)), "Running", pods("workers", 0, 1))
    assert counts(made, "none") == {"succeeded": 3}


def test_a_stage_is_over_when_the_next_has_begun_whatever_became_of_its_gang() -> None:
    found = jobset(replicated("fetch", 1), replicated("node", 2, dependsOn=[{"name": "fetch", "status": "Complete"}]))
    first, last = stages(found)
    made = current(found, [Running(first, None, is_over=True), Running(last, gang(last.document, "Succeeded"))], NOW)
    assert conditions(made) == {"Completed": ("True", "AllJobsCompleted")}


def test_a_gang_that_runs_is_told_of_though_what_was_added_later_cannot_be_run() -> None:
    found = jobset(replicated("workers"))
    (stage,) = stages(found)
    running = [Running(stage, gang(stage.document, "Running"), pods("workers", 0, 1))]
    made = current(found, running, NOW, "metadata.annotations[gangctl.io/spec]: no")
    assert conditions(made) == {"Accepted": ("False", "Unsupported")}
    assert counts(made) == {"active": 1, "ready": 1}


def test_a_restart_keeps_its_first_message() -> None:
    found = jobset(replicated("workers"))
    states: dict[str, Any] = {"conditions": [("Restarting", True, "x")], "incidents": [incident("workers-0")]}
    found["status"] = outcome(found, "Gathering", **states, message="worker-0 exited").status
    again = outcome(found, "Gathering", **states, message="waits for worker-1")
    assert (again.status, again.events) == (found["status"], ())


def test_a_later_stage_keeps_the_jobset_open() -> None:
    found = jobset(replicated("fetch", 1), replicated("node", 2, dependsOn=[{"name": "fetch", "status": "Complete"}]))
    first, last = stages(found)
    made = current(found, [Running(first, gang(first.document, "Succeeded")), Running(last, None)], NOW)
    assert conditions(made) == {}
    assert counts(made, "fetch") == {"succeeded": 1}
    assert counts(made, "node") == {}


def test_a_job_that_waits_for_others_is_not_active() -> None:
    found = jobset(
        replicated("server", 1),
        replicated("node", 2),
        startupPolicy={"startupPolicyOrder": "InOrder"},
    )
    everyone = [*pods("server", 0), *pods("node", 0, 1)]
    made = outcome(found, "Running", everyone)
    assert (counts(made, "server"), counts(made, "node")) == ({"active": 1, "ready": 1}, {})
    assert conditions(made) == {"StartupPolicyInProgress": ("True", "InOrderStartupPolicyInProgress")}
    found["status"] = made.status
    started = {"attempt": 1, "time": AT, "roles": ["node"]}
    made = outcome(found, "Running", everyone, startedRoles=started)
    assert counts(made, "node") == {"active": 1, "ready": 1}
    assert conditions(made) == {
        "StartupPolicyInProgress": ("False", "InOrderStartupPolicyInProgress"),
        "StartupPolicyCompleted": ("True", "InOrderStartupPolicyCompleted"),
    }
    found["spec"]["suspend"] = True
    assert counts(outcome(found, "Running", everyone), "node") == {"active": 1, "ready": 1, "suspended": 1}


@pytest.mark.parametrize("status", ["Ready", "Complete"])
def test_a_job_that_depends_on_others_is_not_suspended_before_it_has_started(status: str) -> None:
    after = replicated("node", 2, 3, dependsOn=[{"name": "server", "status": status}])
    found = jobset(replicated("server", 1), after, suspend=True)
    first, *rest = stages(found)
    made = current(found, [Running(first, gang(first.document, "Suspended", startedAttempt=0))], NOW)
    assert (counts(made, "server"), counts(made, "node")) == ({"suspended": 1}, {})
    last = rest[0] if rest else first
    made = current(found, [Running(last, gang(last.document, "Suspended"))], NOW)
    assert counts(made, "node") == {"suspended": 3}
