"""What a JobSet becomes: GangJobs that hold what it asks for, or all reasons why a gang can't run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.annexes.jobset import names
from gangctl.annexes.jobset.pods import complete
from gangctl.annexes.jobset.translation import Stage, UnsupportedError, stages
from gangctl.api.manifest import load_gangjob
from gangctl.api.names import MAX_POD_NAME, longest_pod_name, pod_labels
from tests.annexes.convert.test_cases import CASES
from tests.annexes.jobset.jobsets import jobset, replicated, worker


def only(found: dict[str, Any]) -> dict[str, Any]:
    """The spec of the only gang, which the API server would take."""
    (stage,) = stages(found)
    load_gangjob(json.dumps(stage.document), "")
    spec: dict[str, Any] = stage.document["spec"]
    return spec


def refusals(found: dict[str, Any]) -> str:
    with pytest.raises(UnsupportedError) as refused:
        stages(found)
    return str(refused.value)


def test_a_jobset_becomes_a_gang_of_the_same_name_that_it_owns() -> None:
    (stage,) = stages(jobset(replicated("workers", 4)))
    metadata = stage.document["metadata"]
    assert (stage.gang, metadata["namespace"]) == ("llama", "team")
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "llama",
            "uid": "u-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert metadata["labels"] == {"team": "red", "jobset.sigs.k8s.io/jobset-name": "llama"}, "Kueue has the JobSet"


def test_each_replicated_job_becomes_a_role_without_ranks_of_its_own() -> None:
    spec = only(jobset(replicated("driver", 1), replicated("big-Workers".lower(), 4, 3)))
    assert [(one["name"], one["replicas"]) for one in spec["roles"]] == [("driver", 1), ("bigworkers", 12)]
    assert {one["processGroup"] for one in spec["roles"]} == {""}, "JobSet sets no RANK and no MASTER_ADDR"


def test_workers_get_the_index_that_the_job_controller_gives() -> None:
    (role,) = only(jobset(replicated("workers", template=worker(env=[{"name": "LR", "value": "0.1"}]))))["roles"]
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    index = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert role["template"]["spec"]["containers"][0]["env"] == [{"name": "LR", "value": "0.1"}, index]


def test_names_that_are_too_long_for_a_gang_are_cut_and_stay_apart() -> None:
    made = set[str]()
    for name in ("x" * 45 + "-a", "x" * 45 + "-b"):
        found = jobset(replicated("workers", 4))
        found["metadata"]["name"] = name
        (stage,) = stages(found)
        made.add(stage.gang)
        assert longest_pod_name(stage.gang, "workers", 4) <= MAX_POD_NAME
        load_gangjob(json.dumps(stage.document), "")
    assert len(made) == 2


def test_two_replicated_jobs_whose_names_become_alike_stay_apart() -> None:
    spec = only(jobset(replicated("a-b"), replicated("ab"), replicated("a-0-b-c-d-e-f-g-h-i-j-k")))
    assert [one["name"] for one in spec["roles"]] == ["ab", "ab2", "a0bcdefghijk"]


def test_jobs_that_wait_until_others_are_complete_are_gangs_one_after_the_other() -> None:
    found = jobset(
        replicated("fetch-data", 1),
        replicated("fetch-model", 1),
        replicated("node", 4, dependsOn=[{"name": f"fetch-{one}", "status": "Complete"} for one in ("data", "model")]),
    )
    first, last = stages(found)
    assert (first.gang, dict(first.roles)) == ("llama-s0", {"fetch-data": "fetchdata", "fetch-model": "fetchmodel"})
    assert (last.gang, dict(last.roles)) == ("llama", {"node": "node"})


def test_jobs_wait_for_no_replicated_job_without_pods_and_for_what_such_jobs_wait_for() -> None:
    of_none = [{"name": "none", "status": "Complete"}]
    assert order(only(jobset(replicated("none", 1, 0), replicated("b", dependsOn=of_none), replicated("c")))) == {
        "b": [],
        "c": [],
    }
    after = [{"name": "a", "status": "Complete"}]
    none = replicated("none", 1, 0, dependsOn=after)
    assert len(stages(jobset(replicated("a"), none, replicated("b", dependsOn=of_none)))) == 1
    empty = replicated("none", 0, 1, dependsOn=after)
    found = stages(jobset(replicated("a"), empty, replicated("b", dependsOn=of_none)))
    assert [list(one.roles) for one in found] == [["a"], ["b"]]


@pytest.mark.parametrize(("counted", "most"), [(0, 5), (1, 5), (2, 3), (5, 1)])
def test_restarts_of_a_stage_are_taken_off_the_budget_of_the_next(counted: int, most: int) -> None:
    """Each stage may have the failed pods that its Jobs could have in the restarts that are left."""
    after = [{"name": "init", "status": "Complete"}]
    jobs = replicated("init", backoffLimit=1), replicated("a", backoffLimit=1, dependsOn=after)
    first, last = stages(jobset(*jobs, failurePolicy={"maxRestarts": 2}))
    spec = last.after(first.restarts(counted))["spec"]
    assert spec["recovery"]["budget"]["maxRestarts"] == most


def test_a_budget_of_the_annotation_holds_for_each_stage() -> None:
    text = "recovery: {budget: {type: Windowed, maxRestarts: 4, windowSeconds: 60}}"
    (stage,) = stages(jobset(replicated("a"), annotations={names.ANNOTATION_SPEC: text}))
    assert (stage.restarts(9), stage.after(9)) == (0, stage.document)


def test_what_is_said_about_a_later_stage_names_its_own_replicated_jobs() -> None:
    after = [{"name": "init", "status": "Complete"}]
    found = jobset(replicated("init"), replicated("a", dependsOn=after), replicated("b", dependsOn=after))
    first, last = stages(found)
    text = "spec.roles[0].template.spec.containers[0].command and spec.roles[1].template.spec"
    assert first.in_terms_of_jobset(text).startswith("spec.replicatedJobs[0].template.spec.template.spec.containers[0]")
    assert last.in_terms_of_jobset(text) == (
        "spec.replicatedJobs[1].template.spec.template.spec.containers[0].command and "
        "spec.replicatedJobs[2].template.spec.template.spec"
    )


def order(spec: dict[str, Any]) -> dict[str, list[str]]:
    """Role -> the roles that it waits for."""
    return {role["name"]: [one["name"] for one in role.get("dependsOn", ())] for role in spec["roles"]}


def test_jobs_that_wait_until_others_are_ready_are_roles_that_wait_for_roles() -> None:
    after = [{"name": "my-server", "status": "Ready"}]
    spec = only(jobset(replicated("my-server", 1), replicated("node", 4, dependsOn=after), replicated("rest", 1)))
    assert order(spec) == {"myserver": [], "node": ["myserver"], "rest": []}


def test_jobs_that_start_in_order_wait_each_for_the_one_before_that_has_pods() -> None:
    policy = {"startupPolicyOrder": "InOrder"}
    spec = only(jobset(replicated("a"), replicated("none", 0), replicated("b"), replicated("c"), startupPolicy=policy))
    assert order(spec) == {"a": [], "b": ["a"], "c": ["b"]}


def test_jobs_wait_for_the_ready_ones_of_their_own_stage_only() -> None:
    found = jobset(
        replicated("fetch", 1),
        replicated("server", 1, dependsOn=[{"name": "fetch", "status": "Complete"}]),
        replicated("node", 2, dependsOn=[{"name": "server", "status": "Ready"}]),
    )
    first, last = stages(found)
    assert order(dict(first.document["spec"])) == {"fetch": []}
    assert order(dict(last.document["spec"])) == {"server": [], "node": ["server"]}


def test_a_startup_probe_of_the_worker_becomes_its_readiness_probe() -> None:
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 5}
    template = worker(startupProbe={**probe, "terminationGracePeriodSeconds": 3})
    (role,) = only(jobset(replicated("a", template=template)))["roles"]
    (container,) = role["template"]["spec"]["containers"]
    assert container["readinessProbe"] == probe
    assert "startupProbe" not in container


@pytest.mark.parametrize(
    ("limit", "restarts", "strategy", "budget"),
    [
        (0, 3, "Recreate", {"type": "Windowed", "maxRestarts": 3, "windowSeconds": 31_536_000}),
        (2, 1, "Recreate", {"type": "Windowed", "maxRestarts": 5, "windowSeconds": 31_536_000}),
        ((1 << 31) - 1, 7, "InPlaceRestart", {"type": "Windowed", "maxRestarts": 7, "windowSeconds": 31_536_000}),
        (0, 1000, "Recreate", {"type": "Unlimited"}),
    ],
)
def test_the_budget_is_the_number_of_failed_pods_that_a_job_could_have(
    limit: int, restarts: int, strategy: str, budget: dict[str, Any]
) -> None:
    policy = {"maxRestarts": restarts, "restartStrategy": strategy}
    assert only(jobset(replicated("workers", backoffLimit=limit), failurePolicy=policy))["recovery"] == {
        "budget": budget
    }


def test_without_a_failure_policy_the_first_failed_job_ends_the_jobset() -> None:
    assert only(jobset(replicated("workers")))["recovery"]["budget"]["maxRestarts"] == 0


CODES = {"operator": "In", "values": [42]}
FAIL_JOB = {"rules": [{"action": "FailJob", "onExitCodes": CODES}]}


@pytest.mark.parametrize(
    ("action", "made"),
    [
        ("FailJobSet", "FailJob"),
        ("RestartJobSet", "Count"),
        ("RestartJob", "Count"),
        ("RestartJobSetAndIgnoreMaxRestarts", "Ignore"),
        ("RestartJobAndIgnoreMaxRestarts", "Ignore"),
    ],
)
def test_a_rule_of_the_jobset_decides_what_a_rule_of_its_job_leads_to(action: str, made: str) -> None:
    rules = [{"name": "r", "action": action, "onJobFailureReasons": ["PodFailurePolicy"]}]
    spec = only(
        jobset(replicated("workers", podFailurePolicy=FAIL_JOB), failurePolicy={"maxRestarts": 3, "rules": rules})
    )
    assert spec["podFailurePolicy"]["rules"] == [{"action": made, "onExitCodes": CODES}]


FAILS, RESTARTS = {"action": "FailJobSet"}, {"action": "RestartJobSet"}
IGNORES = {"action": "RestartJobSetAndIgnoreMaxRestarts"}
BY_CODE, BY_LIMIT = {"onJobFailureReasons": ["PodFailurePolicy"]}, {"onJobFailureReasons": ["BackoffLimitExceeded"]}


@pytest.mark.parametrize(
    ("rules", "made"),
    [
        ([FAILS | BY_CODE, RESTARTS | BY_CODE], "FailJob"),
        ([RESTARTS | BY_CODE, FAILS | BY_CODE], "Count"),
        ([IGNORES | BY_CODE, FAILS], "Ignore"),
        ([FAILS | BY_LIMIT], "Count"),
        ([FAILS | {"targetReplicatedJobs": ["driver"]}, RESTARTS], "Count"),
    ],
)
def test_the_first_rule_that_matches_a_failed_job_decides(rules: list[dict[str, Any]], made: str) -> None:
    job = replicated("workers", podFailurePolicy=FAIL_JOB, backoffLimit=1)
    spec = only(jobset(job, failurePolicy={"maxRestarts": 1, "rules": rules}))
    assert spec["podFailurePolicy"]["rules"][0] == {"action": made, "onExitCodes": CODES}


def test_a_rule_for_one_replicated_job_is_one_for_its_role() -> None:
    rules = [{"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["driver"]}]
    spec = only(jobset(replicated("driver"), replicated("workers"), failurePolicy={"maxRestarts": 3, "rules": rules}))
    any_failure = {"operator": "NotIn", "values": [0]}
    assert spec["podFailurePolicy"]["rules"] == [{"action": "FailJob", "roles": ["driver"], "onExitCodes": any_failure}]


def test_a_job_whose_first_failure_too_many_fails_the_jobset_has_no_more_restarts() -> None:
    rules = [{"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}]
    spec = only(jobset(replicated("a", backoffLimit=3), failurePolicy={"maxRestarts": 10, "rules": rules}))
    assert spec["recovery"]["budget"]["maxRestarts"] == 3


LEADER_ENDS = {"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["leader"]}
REST_RESTARTS = {"name": "s", "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["workers"]}


@pytest.mark.parametrize(
    ("of_leader", "of_workers", "restarts", "rules", "most"),
    [
        (0, 0, 3, [LEADER_ENDS], 3),
        (0, 1, 3, [LEADER_ENDS], 7),
        (2, 6, 0, [LEADER_ENDS], 2),
        (0, 2, 3, [], 3),
        (2, 0, 0, [LEADER_ENDS, REST_RESTARTS], 2),
        (3, 0, 1, [REST_RESTARTS], 7),
    ],
)
def test_a_job_whose_failure_restarts_nothing_takes_no_restarts_away(
    of_leader: int, of_workers: int, restarts: int, rules: list[dict[str, Any]], most: int
) -> None:
    jobs = replicated("leader", 1, backoffLimit=of_leader), replicated("workers", backoffLimit=of_workers)
    spec = only(jobset(*jobs, failurePolicy={"maxRestarts": restarts, "rules": rules}))
    assert spec["recovery"]["budget"]["maxRestarts"] == most


def test_a_job_that_ends_the_jobset_after_retries_of_its_own_beside_others_that_restart_is_refused() -> None:
    jobs = replicated("leader", 1, backoffLimit=1), replicated("workers")
    found = jobset(*jobs, failurePolicy={"maxRestarts": 3, "rules": [LEADER_ENDS]})
    assert "backoffLimit: a gang has one budget" in refusals(found)


def test_success_of_some_replicated_jobs_is_success_of_their_roles() -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    spec = only(jobset(replicated("driver"), replicated("workers"), successPolicy=policy))
    assert spec["successPolicy"] == {"type": "Roles", "roles": ["driver"]}


def test_the_annotation_adds_what_only_a_gang_has() -> None:
    text = """
    checkpoint: {tiers: [{name: disk, scope: Shared, source: {type: Directory, directory: /ckpt, layout: TorchDCP}}]}
    recovery: {stopGracePeriodSeconds: 9}
    podFailurePolicy: {rules: [{name: full, action: Ignore, onExitCodes: {operator: In, values: [75]}}]}
    roles: [{name: workers, processesPerPod: 8, processGroup: world}]
    """
    spec = only(jobset(replicated("workers", podFailurePolicy=FAIL_JOB), annotations={names.ANNOTATION_SPEC: text}))
    assert spec["checkpoint"]["tiers"][0]["name"] == "disk"
    assert spec["recovery"]["stopGracePeriodSeconds"] == 9
    assert spec["recovery"]["budget"]["maxRestarts"] == 0, "the JobSet's own stays"
    assert [one.get("name") for one in spec["podFailurePolicy"]["rules"]] == ["full", None], "the annotation's first"
    assert (spec["roles"][0]["processesPerPod"], spec["roles"][0]["processGroup"]) == (8, "world")


def test_a_rule_of_the_annotation_names_replicated_jobs_and_is_for_the_gang_that_has_them() -> None:
    text = """
    podFailurePolicy: {rules: [
      {name: one, action: Ignore, onReasons: [Hang], roles: [load-data]},
      {name: two, action: Ignore, onReasons: [Hang], roles: [load-data, train-1]},
      {name: all, action: Ignore, onReasons: [Hang]}]}
    """
    after = replicated("train-1", dependsOn=[{"name": "load-data", "status": "Complete"}])
    found = stages(jobset(replicated("load-data"), after, annotations={names.ANNOTATION_SPEC: text}))
    for stage in found:
        load_gangjob(json.dumps(stage.document), "")
    rules = [stage.document["spec"]["podFailurePolicy"]["rules"] for stage in found]
    named = [{one["name"]: one.get("roles") for one in of_stage if "name" in one} for of_stage in rules]
    assert named == [
        {"one": ["loaddata"], "two": ["loaddata"], "all": None},
        {"two": ["train1"], "all": None},
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("suspend: true", "gangctl.io/spec].suspend: the JobSet decides it"),
        ("roles: [{name: workers, spares: 1}]", "roles.spares: the JobSet decides it"),
        ("roles: [{name: other}]", "'other' is no replicated job"),
        ("- a", "expected one map"),
        ("a: [", "gangctl.io/spec]: "),
        ("recovery: x", "gangctl.io/spec].recovery: expected a map"),
        ("podFailurePolicy: {rules: 5}", "podFailurePolicy.rules: expected a list"),
        ("roles: [{name: [a]}]", "is no replicated job"),
        ("network: {a: &a x, b: *a}", "anchors and aliases"),
        ("progress: {timeoutSeconds: .inf}", "progress.timeoutSeconds"),
        ("x" * 16_385, "16385 characters"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_refused(text: str, why: str) -> None:
    assert why in refusals(jobset(replicated("workers"), annotations={names.ANNOTATION_SPEC: text}))


@pytest.mark.parametrize(
    ("found", "field"),
    [
        (jobset(replicated("a", 1, 2), successPolicy={"operator": "Any"}), "spec.successPolicy.operator"),
        (
            jobset(replicated("a", template={"spec": {"containers": []}})),
            "spec.replicatedJobs[0].template.spec.template.spec.containers: the template has no container",
        ),
        (jobset(replicated("a", completions=4)), "spec.replicatedJobs[0].template.spec.completions"),
        (jobset(replicated("a", backoffLimitPerIndex=1)), "spec.replicatedJobs[0].template.spec.backoffLimitPerIndex"),
        (jobset(replicated("a", successPolicy={"rules": []})), "spec.replicatedJobs[0].template.spec.successPolicy"),
        (
            jobset(replicated("a", activeDeadlineSeconds=9), failurePolicy={"maxRestarts": 1}),
            "spec.replicatedJobs[0].template.spec.activeDeadlineSeconds",
        ),
        (
            jobset(
                replicated("a", activeDeadlineSeconds=9),
                failurePolicy={"rules": [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]},
            ),
            "spec.replicatedJobs[0].template.spec.activeDeadlineSeconds",
        ),
        (jobset(replicated("a", podFailurePolicy={"rules": [{"action": "FailIndex"}]})), "replicated job a"),
        (
            jobset(
                replicated("a"),
                failurePolicy={"rules": [{"name": "r", "action": "FailJobSet", "onJobFailureMessagePatterns": ["x"]}]},
            ),
            "spec.failurePolicy.rules[0].onJobFailureMessagePatterns",
        ),
        (
            jobset(
                *(replicated(f"a{at}", podFailurePolicy={"rules": FAIL_JOB["rules"] * 5}) for at in range(4)),
                annotations={names.ANNOTATION_SPEC: "podFailurePolicy: {rules: [{action: Ignore}]}"},
            ),
            "rules: those of the JobSet, its Jobs and its annotation become 21; at most 20",
        ),
        (jobset(replicated("a", 0)), "spec.replicatedJobs: no pod"),
        (jobset(), "spec.replicatedJobs: no pod"),
        (jobset(replicated("a", 1, 10_001)), "1 replicated jobs with 10001 pods"),
        (jobset(*(replicated(f"a{at}") for at in range(9))), "9 replicated jobs with 18 pods"),
        (
            jobset(replicated("a"), replicated("b"), replicated("c", dependsOn=[{"name": "a", "status": "Complete"}])),
            "replicated job b: others wait until another is complete, and none for it",
        ),
        (jobset(replicated("a", activeDeadlineSeconds=9), replicated("b")), "activeDeadlineSeconds"),
    ],
)
def test_what_a_gang_cannot_do_is_refused_by_the_field(found: dict[str, Any], field: str) -> None:
    assert field in refusals(found)


def test_the_agent_of_jobset_is_not_needed_and_would_wait_without_end() -> None:
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]
    policy = {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"}
    found = jobset(replicated("a", template=worker(restartPolicyRules=rules)), failurePolicy=policy)
    assert "in-place-restart-agent waits" in refusals(found)
    found["metadata"]["annotations"] = {"jobset.sigs.k8s.io/disable-in-place-restart": ""}
    only(found)


@pytest.mark.parametrize("file", [one for one in CASES if one.stem.startswith("jobset-")], ids=lambda file: file.stem)
def test_a_jobset_that_people_write_is_run_or_refused(file: Path) -> None:
    """As they are written: without the defaults of JobSet's webhooks."""
    found = yaml.safe_load(file.read_text())
    found["metadata"] |= {"uid": "u", "namespace": "team"}
    try:
        made = stages(found)
    except UnsupportedError as error:
        assert str(error)  # noqa: PT017 - both are right
        return
    assert sum(role["replicas"] for one in made for role in one.document["spec"]["roles"])


def test_all_reasons_are_given_at_once() -> None:
    text = refusals(jobset(replicated("a", completions=4, manualSelector=True)))
    assert "completions" in text
    assert "manualSelector" in text


def test_claims_are_mounted_where_a_container_asks_for_them() -> None:
    template = worker(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    policy = {"templates": [{"metadata": {"name": "data"}, "spec": {}}, {"metadata": {"name": "rest"}, "spec": {}}]}
    (role,) = only(jobset(replicated("a", template=template), volumeClaimPolicies=[policy]))["roles"]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-llama"}}
    assert role["template"]["spec"]["volumes"] == [claim]


# Pods.


def pod(found: dict[str, Any], role: str, index: int) -> dict[str, Any]:
    """The pod of a member, as the pod builder makes it from its template."""
    template = next(one["template"] for one in only(found)["roles"] if one["name"] == role)
    labels = template["metadata"]["labels"] | pod_labels("llama", "g-1", f"{role}-{index}", 0)
    metadata = {"namespace": "team", "labels": labels, "annotations": dict(template["metadata"]["annotations"])}
    return complete({"metadata": metadata, "spec": dict(template["spec"])})


def test_a_pod_has_the_names_that_it_would_have_under_jobset() -> None:
    found = jobset(replicated("driver", 1, 2), replicated("workers", 4, 3), coordinator={"replicatedJob": "driver"})
    made = pod(found, "workers", 9)
    expected = {
        "jobset.sigs.k8s.io/jobset-name": "llama",
        "jobset.sigs.k8s.io/jobset-uid": "u-1",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "3",
        "jobset.sigs.k8s.io/global-replicas": "5",
        "jobset.sigs.k8s.io/restart-attempt": "0",
        "jobset.sigs.k8s.io/job-index": "2",
        "jobset.sigs.k8s.io/job-global-index": "4",
        "jobset.sigs.k8s.io/job-group-index": "4",
        "jobset.sigs.k8s.io/group-name": "default",
        "jobset.sigs.k8s.io/group-replicas": "5",
        "jobset.sigs.k8s.io/coordinator": "llama-driver-0-0.llama",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    expected["jobset.sigs.k8s.io/job-key"] = names.job_key("team", "llama-workers-2")
    assert expected.items() <= made["metadata"]["labels"].items()
    assert expected.items() <= made["metadata"]["annotations"].items()
    assert made["metadata"]["labels"]["job-name"] == "llama-workers-2"
    assert names.ANNOTATION_PLACE not in made["metadata"]["annotations"]
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("llama-workers-2-1", "llama")


def test_a_job_with_a_domain_to_itself_attracts_its_own_pods_and_repels_those_of_others() -> None:
    found = jobset(replicated("a", 2, 2), annotations={names.EXCLUSIVE: "rack"})
    first, other = pod(found, "a", 0), pod(found, "a", 2)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (near,), (apart,) = (first["spec"]["affinity"][kind][required] for kind in ("podAffinity", "podAntiAffinity"))
    key = first["metadata"]["labels"][names.JOB_KEY]
    assert near["labelSelector"]["matchExpressions"] == [{"key": names.JOB_KEY, "operator": "In", "values": [key]}]
    assert (near["topologyKey"], apart["topologyKey"]) == ("rack", "rack")
    assert apart["labelSelector"]["matchExpressions"][1]["values"] == [key]
    assert other["metadata"]["labels"][names.JOB_KEY] != key
    assert names.EXCLUSIVE not in first["metadata"]["annotations"], "JobSet's webhook would take it for its own"


def test_the_annotations_of_a_domain_are_merged_as_jobset_does_and_stay_off_the_pods() -> None:
    found = jobset(replicated("a", 2, 2), annotations={names.EXCLUSIVE: "rack"})
    found["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": {names.NODE_SELECTOR: "true"}}
    assert "nodeSelector" in pod(found, "a", 0)["spec"]
    of_pod = jobset(replicated("a", 2, 2))
    template = of_pod["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {names.EXCLUSIVE: "rack"}}
    made = pod(of_pod, "a", 1)
    assert "affinity" in made["spec"]
    assert names.EXCLUSIVE not in made["metadata"]["annotations"]


def test_nodes_that_are_labelled_for_each_job_are_selected_by_its_name() -> None:
    annotations = {names.EXCLUSIVE: "rack", names.NODE_SELECTOR: "true"}
    made = pod(jobset(replicated("a", 2, 2), annotations=annotations), "a", 3)
    assert made["spec"]["nodeSelector"] == {"alpha.jobset.sigs.k8s.io/namespaced-job": "team_llama-a-1"}
    assert "affinity" not in made["spec"]
    assert made["spec"]["tolerations"][0]["key"] == "alpha.jobset.sigs.k8s.io/no-schedule"


def test_ten_thousand_pods_have_ten_thousand_host_names() -> None:
    found = jobset(replicated("a", 100, 60), replicated("b", 8, 500))
    roles = {one["name"]: one for one in only(found)["roles"]}
    hosts = set[str]()
    keys = set[str]()
    for name, role in roles.items():
        for index in range(role["replicas"]):
            template = role["template"]
            labels = template["metadata"]["labels"] | pod_labels("llama", "g-1", f"{name}-{index}", 0)
            annotations = dict(template["metadata"]["annotations"])
            made = complete(
                {"metadata": {"namespace": "team", "labels": labels, "annotations": annotations}, "spec": {}}
            )
            hosts.add(made["spec"]["hostname"])
            keys.add(made["metadata"]["labels"][names.JOB_KEY])
    assert (len(hosts), len(keys)) == (10_000, 560)


def test_a_new_release_of_jobset_that_shows_more_fields_by_default_changes_no_gang() -> None:
    def stage(generation: int, labels: dict[str, str], **job: Any) -> Stage:
        found = jobset(replicated("workers", **job))
        found["metadata"] |= {"generation": generation, "labels": labels}
        (made,) = stages(found)
        return made

    before = stage(3, {}).applied
    assert stage(3, {}, groupName="mine").is_applied(before)
    assert not stage(3, {"team": "red"}, groupName="mine").is_applied(before)
    changed = stage(4, {}, groupName="mine")
    assert not changed.is_applied(before)
    assert not changed.keeps_pods(before)
    assert stage(4, {}).keeps_pods(before), "what its pods are made from is the same"
