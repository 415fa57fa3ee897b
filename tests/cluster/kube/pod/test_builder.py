"""The golden files of the pod builder. `make scenarios` writes them again."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.injection import RESERVED_VARIABLES, SUPERVISOR, escape_dollars
from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.core.policy.pods import CreatePod
from gangsidecar.supervisor.launch import expand
from tests.cluster.kube.pod.podcases import CASES, CONTACT, MINIMAL, SETTINGS, SPARES, VARIABLES, Case, job

FOLDER = Path(__file__).parent / "golden"


def built(case: Case) -> dict[str, Any]:
    return build_pod(case.job, case.create, SETTINGS, CONTACT, restart_all=case.restart_all)


def template(**spec: Any) -> Case:
    """The minimal gang with this in its template's spec."""
    roles = yaml.safe_load(MINIMAL)
    roles[0]["template"]["spec"] |= spec
    return Case("", job(yaml.safe_dump(roles)), CreatePod("worker-0", 0))


def main(**container: Any) -> Case:
    """The minimal gang with this in its worker's container."""
    written = yaml.safe_load(MINIMAL)[0]["template"]["spec"]["containers"][0]
    return template(containers=[written | container])


@pytest.mark.parametrize("name", CASES)
def test_a_pod_equals_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    case, path = CASES[name], FOLDER / f"{name}.yaml"
    text = f"# {case.description}\n" + yaml.safe_dump(built(case), sort_keys=False, width=120)
    if request.config.getoption("--regenerate"):
        path.write_text(text)
    else:
        assert text == path.read_text()


def test_each_case_has_a_golden_file() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_builder_is_pure(case: Case) -> None:
    before = copy.deepcopy(case.job)
    first, second = built(case), built(case)
    assert first == second
    first["spec"]["initContainers"][0]["resources"]["limits"]["memory"] = "changed"
    first["metadata"]["labels"]["app"] = "changed"
    first["spec"]["containers"][0]["name"] = "changed"
    assert built(case) == second
    assert case.job == before


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_supervisor_runs_the_worker_only_and_the_sidecar_alone_has_the_token(case: Case) -> None:
    spec = built(case)["spec"]
    containers = [*spec["initContainers"], *spec["containers"]]
    supervised = [one["name"] for one in containers if one.get("command", [])[: len(SUPERVISOR)] == list(SUPERVISOR)]
    role, _, _ = case.create.member.partition("-")
    assert supervised == [next(one.worker.name for one in case.job.spec.roles if one.name == role)]
    holders = [
        one["name"]
        for one in containers
        if any(mount["name"] == "gangctl-hub" for mount in one.get("volumeMounts", ()))
    ]
    assert holders == ["gangctl"]
    assert spec["initContainers"][0]["name"] == "gangctl"


def test_the_pod_keeps_the_fields_of_its_template() -> None:
    case = CASES["torchrun"]
    written = case.job.spec.roles[1].template.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = built(case)["spec"]
    ours = {"restartPolicy", "initContainers", "containers", "volumes", "affinity"}
    assert {key: value for key, value in spec.items() if key not in ours} == {
        key: value for key, value in written.items() if key not in ours
    }
    for key in ("initContainers", "volumes"):
        assert all(any(one.items() <= made.items() for made in spec[key]) for one in written[key])
    assert spec["containers"][0] == {**written["containers"][0], "restartPolicy": "OnFailure"}
    worker, theirs = spec["containers"][1], written["containers"][1]
    changed = {"command", "args", "env", "volumeMounts", "restartPolicy", "restartPolicyRules"}
    assert {key: value for key, value in worker.items() if key not in changed} == {
        key: value for key, value in theirs.items() if key not in changed
    }
    assert worker["volumeMounts"][:2] == theirs["volumeMounts"]


@pytest.mark.parametrize("create", [CreatePod("worker-0", 0), CreatePod("worker-0", 1), CreatePod("worker-2", 0)])
def test_a_pod_names_the_template_of_its_claims_and_no_claim_so_that_it_has_its_own(create: CreatePod) -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    roles = yaml.safe_load(SPARES)
    spec = roles[0]["template"]["spec"]
    spec["resourceClaims"] = claims
    spec["containers"][0]["resources"] = {"claims": [{"name": "gpu", "request": "one"}]}
    pod = built(Case("", job(yaml.safe_dump(roles)), create))
    assert pod["spec"]["resourceClaims"] == claims
    assert pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "gpu", "request": "one"}]}
    assert not any("claims" in one.get("resources", {}) for one in pod["spec"]["initContainers"]), (
        "none for the sidecar"
    )
    # Kubernetes makes the claim of a pod under the pod's name, and the pod owns it.
    assert pod["metadata"]["name"] == f"llama-{create.member}-{create.incarnation}"


def test_a_pod_that_waits_for_a_queue_to_name_its_node_avoids_another_as_a_preference() -> None:
    gated = MINIMAL.replace("    spec:\n", "    spec:\n      schedulingGates: [{name: kueue.x-k8s.io/topology}]\n")
    for roles, kind in ((MINIMAL, "required"), (gated, "preferred")):
        create = CreatePod("worker-0", 1, ("node-7",), required=True)
        made = build_pod(job(roles), create, SETTINGS, CONTACT, restart_all=True)["spec"]["affinity"]["nodeAffinity"]
        assert list(made) == [f"{kind}DuringSchedulingIgnoredDuringExecution"]


def test_nodes_that_a_companion_advises_against_are_a_weaker_preference_than_those_that_the_gang_has_left() -> None:
    for required in (False, True):
        create = CreatePod("worker-0", 1, ("node-7",), required=required)
        unfavoured = ("node-8", "node-7", "node-9")
        made = build_pod(job(MINIMAL), create, SETTINGS, CONTACT, restart_all=True, unfavoured=unfavoured)
        near = made["spec"]["affinity"]["nodeAffinity"]
        preferred = near["preferredDuringSchedulingIgnoredDuringExecution"]
        named = [(one["weight"], [field["values"] for field in one["preference"]["matchFields"]]) for one in preferred]
        assert named == [*([] if required else [(100, [["node-7"]])]), (50, [["node-8"], ["node-9"]])]
        assert ("requiredDuringSchedulingIgnoredDuringExecution" in near) is required


def test_every_nonempty_term_avoids_the_node() -> None:
    near = built(CASES["torchrun"])["spec"]["affinity"]["nodeAffinity"]
    excluded = {"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}
    first, second, empty = near["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert excluded in first["matchFields"]
    assert first["matchExpressions"]
    assert [one["values"] for one in second["matchFields"]] == [["old"], ["node-7"]]
    assert empty == {}, "an empty term matches no node; with a requirement, it would match nearly all nodes"


def test_restart_policies_of_the_template_are_ignored() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]
    case = main(restartPolicy="OnFailure", restartPolicyRules=rules)
    spec = built(case)["spec"]
    assert (spec["restartPolicy"], spec["containers"][0]["restartPolicy"]) == ("Never", "Never")
    assert [one["action"] for one in spec["containers"][0]["restartPolicyRules"]] == ["RestartAllContainers"]
    spec = built(replace(case, restart_all=False))["spec"]
    assert spec["restartPolicy"] == "OnFailure"
    assert not {"restartPolicy", "restartPolicyRules"} & set(spec["containers"][0])
    assert built(template(restartPolicy="OnFailure"))["spec"]["restartPolicy"] == "Never"


def test_the_restart_policy_of_the_template_holds_for_the_users_other_containers() -> None:
    others = [{"name": "log", "image": "i"}, {"name": "own", "image": "i", "restartPolicy": "Never"}]
    worker = {"name": "main", "image": "i", "command": ["w"]}
    fields = {"initContainers": [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}]}
    retried = template(restartPolicy="OnFailure", containers=[worker, *others], **fields)

    def policies(case: Case) -> dict[str, str | None]:
        spec = built(case)["spec"]
        return {one["name"]: one.get("restartPolicy") for one in (*spec["initContainers"], *spec["containers"])}

    kept = {"gangctl": "Always", "proxy": "Always", "main": "Never", "own": "Never"}
    assert policies(retried) == {**kept, "fetch": "OnFailure", "log": "OnFailure"}
    assert policies(template(containers=[worker, *others], **fields)) == {**kept, "fetch": None, "log": None}
    whole = policies(replace(retried, restart_all=False))
    assert whole == {**kept, "main": None, "fetch": None, "log": None}, "the pod's own policy is OnFailure"


def test_reserved_variables_win_and_come_first() -> None:
    env = built(CASES["variables"])["spec"]["containers"][0]["env"]
    names = [one["name"] for one in env]
    assert len(names) == len(set(names))
    ours = RESERVED_VARIABLES
    assert set(names[: len(ours)]) == ours
    assert names[len(ours) :] == ["ME", "HOST", "GANG_ORPHAN_SECONDS"]
    assert env[-3]["value"] == "$(GANG_POD_IP)/$(HOST)"


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (main(args="one"), "containers[0].args: 'one' instead of a list"),
        (main(args=["a", 1]), "containers[0].args[1]: 1 instead of a string"),
        (main(env=["A=1"]), "containers[0].env[0]: 'A=1' instead of a mapping"),
        (template(volumes={}), "volumes: {} instead of a list"),
        (template(affinity=[]), "affinity: [] instead of a mapping"),
        (Case("", job(VARIABLES), CreatePod("another-0", 0)), "gang llama has no role 'another'"),
    ],
)
def test_the_error_of_an_unusable_template_names_the_field(case: Case, text: str) -> None:
    with pytest.raises(Terminal) as refused:
        built(case)
    assert text in str(refused.value)
    assert text.startswith("gang llama") or str(refused.value).startswith("spec.roles[0].template.spec.")


@pytest.mark.parametrize(
    ("roles", "kept"),
    [
        ("[{name: worker, replicas: 1}]", "CUDA,Inductor,JAX,Triton"),
        ("[{name: worker, replicas: 1, spares: 2}]", "CUDA,Inductor,JAX,Triton"),
        ("[{name: worker, replicas: 1, processesPerPod: 8, launch: PerProcess}]", "CUDA,Inductor,JAX,Triton"),
        ("[{name: worker, replicas: 2}]", "CUDA,Inductor,Triton"),
        ("[{name: worker, replicas: 1}, {name: b, replicas: 1}]", "CUDA,Inductor,JAX,Triton"),
        ("[{name: worker, replicas: 1}, {name: b, replicas: 1, processGroup: worker}]", "CUDA,Inductor,Triton"),
        ('[{name: worker, replicas: 1, processGroup: ""}]', "CUDA,Inductor,Triton"),
    ],
)
def test_jax_keeps_its_cache_only_where_one_pod_has_all_processes_of_the_group(roles: str, kept: str) -> None:
    one = yaml.safe_load(MINIMAL)[0]["template"]
    written = [role | {"template": one} for role in yaml.safe_load(roles)]
    env = built(Case("", job(yaml.safe_dump(written)), CreatePod("worker-0", 0)))["spec"]["containers"][0]["env"]
    assert {one["name"]: one.get("value") for one in env}["GANG_CACHES"] == kept


@pytest.mark.parametrize("text", ["[" * 100_000, "x", "5", '{"parallelism": 0}'])
def test_the_error_of_an_unusable_annotation_names_it(text: str) -> None:
    roles = yaml.safe_load(MINIMAL)
    roles[0]["template"]["metadata"] = {"annotations": {"gangctl.io/replicated-job": text}}
    with pytest.raises(Terminal, match=r"annotations\[gangctl.io/replicated-job\]: it can't be used"):
        built(Case("", job(yaml.safe_dump(roles)), CreatePod("worker-0", 0)))


def test_null_in_a_template_means_absent() -> None:
    case = template(affinity=None, hostname=None, terminationGracePeriodSeconds=None, volumes=None, initContainers=None)
    assert built(case)["spec"] == built(template())["spec"]


def kubelet(text: str, variables: dict[str, str]) -> str:
    """A model of the kubelet's expansion, character by character, as in its specification."""
    made, rest = "", text
    while rest:
        head, rest = rest[0], rest[1:]
        if head != "$" or not rest:
            made += head
        elif rest[0] == "$":
            made, rest = made + "$", rest[1:]
        elif rest[0] == "(" and ")" in rest:
            name, _, rest = rest[1:].partition(")")
            made += variables.get(name, f"$({name})")
        else:
            made, rest = made + "$" + rest[0], rest[1:]
    return made


WORDS = st.lists(st.sampled_from(["$", "(", ")", "A", "B", "$(A)", "$$(A)", "$(C)", "\n", "é", " "])).map("".join)
VALUES = st.fixed_dictionaries({"A": st.sampled_from(["1", "$(B)", "$$"]), "B": st.just("2")})


@given(WORDS, VALUES)
def test_the_supervisor_gets_what_the_user_wrote(text: str, variables: dict[str, str]) -> None:
    assert kubelet(escape_dollars(text), variables) == text


@given(WORDS, VALUES)
def test_the_supervisor_expands_a_command_as_the_kubelet_does(text: str, variables: dict[str, str]) -> None:
    """The kubelet doesn't know the variables of the attempt."""
    assert expand(kubelet(escape_dollars(text), {}), variables) == kubelet(text, variables)


def test_a_template_with_a_group_of_its_own_is_refused_beside_that_of_the_gang() -> None:
    roles = yaml.safe_load(MINIMAL)
    roles[0]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    text = yaml.safe_dump(roles)
    kept = built(Case("", job(text), CreatePod("worker-0", 0)))
    assert kept["spec"]["schedulingGroup"] == {"podGroupName": "mine"}
    with pytest.raises(Terminal, match=r"spec.roles\[0\].template.spec.schedulingGroup: gangctl sets it"):
        built(Case("", job(text, "gangScheduling: {type: PodGroup}"), CreatePod("worker-0", 0)))
