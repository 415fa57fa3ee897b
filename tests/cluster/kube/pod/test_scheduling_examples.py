"""The examples for schedulers of gangs: each pod is in the group, and the group counts the required members.

The pods are those that gangctl creates. That a scheduler acts on them is shown where it runs: in
e2e/test_gang_scheduling.py and e2e/queues. Volcano runs in no test: its names are its documented ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.api.gangjob import GROUP, KIND, VERSION, GangJob, Role
from gangctl.api.status import GangPhase
from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.pod.podcases import CONTACT, SETTINGS

EXAMPLES = Path(__file__).parents[4] / "examples" / "scheduling"


def pods(name: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The pods of the first and of a later incarnation of an example's gang, and the group beside it."""
    documents = {one["kind"]: one for one in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())}
    documents["GangJob"]["metadata"] |= {"namespace": "default", "uid": "0aa2c5b4-8c1d-4b0e-9d5e-7d6f3f1f2a11"}
    job = GangJob.model_validate(documents["GangJob"])
    created = [
        CreatePod(f"{role.name}-{at}", later)
        for role in job.spec.roles
        for at in range(role.replicas)
        for later in (0, 4)
    ]
    return [build_pod(job, one, SETTINGS, CONTACT, restart_all=True) for one in created], documents.get("PodGroup")


@pytest.mark.parametrize(
    ("name", "kind", "field", "key", "scheduler"),
    [
        (
            "scheduler-plugins",
            "scheduling.x-k8s.io/v1alpha1",
            "labels",
            "scheduling.x-k8s.io/pod-group",
            "scheduler-plugins-scheduler",
        ),
        ("volcano", "scheduling.volcano.sh/v1beta1", "annotations", "scheduling.k8s.io/group-name", "volcano"),
    ],
)
def test_each_pod_is_in_the_group_that_counts_the_required_members(
    name: str, kind: str, field: str, key: str, scheduler: str
) -> None:
    made, group = pods(name)
    assert group is not None
    assert group["apiVersion"] == kind
    assert group["spec"]["minMember"] * 2 == len(made)
    assert {pod["metadata"][field][key] for pod in made} == {group["metadata"]["name"]}
    assert {pod["spec"]["schedulerName"] for pod in made} == {scheduler}


def test_with_kube_scheduler_gangctl_names_the_group() -> None:
    made, group = pods("pod-group")
    assert group is None
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in made} == {"together-0"}


def test_each_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == {"karta", "pod-group", "scheduler-plugins", "volcano"}


def test_the_karta_names_what_a_gang_and_its_pods_have() -> None:
    """The fields are those of the CRD in github.com/run-ai/karta at dd58fc6a, read there; KAI runs in no test."""
    spec = yaml.safe_load((EXAMPLES / "karta.yaml").read_text())["spec"]
    root, (role,) = spec["structureDefinition"]["rootComponent"], spec["structureDefinition"]["childComponents"]
    assert root["kind"] == {"group": GROUP, "version": VERSION, "kind": KIND}
    mapped = {one["byPhase"] for found in root["statusDefinition"]["statusMappings"].values() for one in found}
    assert mapped == {phase.value for phase in GangPhase if phase}
    (group,) = spec["optimizationInstructions"]["gangScheduling"]["podGroups"]
    (member,) = group["members"]
    made, _ = pods("volcano")
    for path in (role["podSelector"]["componentInstanceSelector"]["idPath"], *member["groupByKeyPaths"]):
        label = path.removeprefix('.metadata.labels["').removesuffix('"]')
        assert all(label in pod["metadata"]["labels"] for pod in made), path
    assert {"replicas", "spares", "name", "template"} <= Role.model_fields.keys()


def test_the_karta_holds_what_its_own_validation_asks_for_beyond_the_schema() -> None:
    spec = yaml.safe_load((EXAMPLES / "karta.yaml").read_text())["spec"]
    structure = spec["structureDefinition"]
    components = [structure["rootComponent"], *structure["childComponents"]]
    names = [one["name"] for one in components]
    assert len(set(names)) == len(names)
    assert [one.get("ownerRef") in names for one in components] == [False, True], "the root has no owner"
    for one in components:
        assert len(one.get("specDefinition", {})) <= 1
        assert ("instanceIdPath" in one) == ("componentInstanceSelector" in one.get("podSelector", {}))
        for action in (action for actions in one.get("suspendDefinition", {}).values() for action in actions):
            assert isinstance(json.loads(action["value"]), bool), "a value is text with JSON"
    groups = spec["optimizationInstructions"]["gangScheduling"]["podGroups"]
    assert {member["componentName"] for group in groups for member in group["members"]} <= set(names)
