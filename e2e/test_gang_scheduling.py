"""Gangs that kube-scheduler places as a whole, by a PodGroup that gangctl creates (spec.gangScheduling)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl
from e2e.scarce import MEMBERS, ON_NODE, first_to_run, needing_most, nodes_of, places, waits_whole
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
GROUPED = {"type": "PodGroup"}
ON_ONE_NODE = {"type": "PodGroup", "topologyKey": "kubernetes.io/hostname"}
URGENT = 1000


@pytest.fixture
def _places(cluster: Cluster, lab: Lab) -> Iterator[None]:  # noqa: ARG001 - its scheduler has the feature gates
    with places(cluster):
        yield


@pytest.fixture
def urgent(cluster: Cluster) -> Iterator[str]:
    """A priority class."""
    cluster.kubectl("create", "priorityclass", "urgent", f"--value={URGENT}")
    yield "urgent"
    cluster.kubectl("delete", "priorityclass", "urgent")


def stored(kubectl: Kubectl, namespace: str) -> list[dict[str, Any]]:
    """The PodGroups that aren't being deleted."""
    found = json.loads(kubectl("get", "podgroups.scheduling.k8s.io", "-n", namespace, "-o", "json"))["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def groups(kubectl: Kubectl, namespace: str) -> dict[str, int]:
    """How many pods each of them asks for."""
    return {
        one["metadata"]["name"]: one["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for one in stored(kubectl, namespace)
    }


@pytest.mark.usefixtures("_places")
def test_two_gangs_that_each_need_most_of_a_cluster_run_one_after_the_other(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, namespace: str
) -> None:
    a, b = (
        submit(needing_most(name, str(shared_dir / name), gangScheduling=GROUPED, suspend=True)) for name in ("a", "b")
    )
    for gang in (a, b):
        gang.patch(suspend=False)
    first, second = first_to_run((a, b))
    first.runs(1)
    waits_whole(second)
    assert groups(kubectl, namespace) == {"a-0": MEMBERS, "b-0": MEMBERS}

    # A pod that is replaced joins its group, and gets a node though the group's other pods are not new.
    before = first.uids()
    kubectl("delete", "pod", first.pods()["worker-1"]["metadata"]["name"], "-n", namespace, "--wait=false")
    first.runs(2)
    after = first.uids()
    assert {member for member in before if before[member] != after[member]} == {"worker-1"}
    assert nodes_of(second) == []

    # A pod that is replaced while its gang waits leaves the group whole: it is not waited for in vain.
    kubectl("delete", "pod", second.pods()["worker-2"]["metadata"]["name"], "-n", namespace)
    first.patch(suspend=True)
    second.runs(1)
    assert len(nodes_of(second)) == MEMBERS

    # All pods of the other gang are new: so is their group, and it waits as a whole again.
    first.patch(suspend=False)
    waits_whole(first)
    until("the earlier group is gone", lambda: f"{first.name}-0" not in groups(kubectl, namespace))
    assert sorted(groups(kubectl, namespace)) == sorted([f"{first.name}-2", f"{second.name}-0"])
    kubectl("delete", "gj", second.name, "-n", namespace)
    first.runs(3)
    until("its groups go with the gang", lambda: list(groups(kubectl, namespace)) == [f"{first.name}-2"])


@pytest.mark.usefixtures("_places")
def test_a_gang_with_a_topology_key_runs_in_one_domain_or_not_at_all(submit: Submit, shared_dir: Path) -> None:
    large = submit(needing_most("large", str(shared_dir / "large"), gangScheduling=ON_ONE_NODE))
    waits_whole(large)
    small = submit(needing_most("small", str(shared_dir / "small"), members=ON_NODE, gangScheduling=ON_ONE_NODE))
    small.runs(1)
    (node,) = set(nodes_of(small))

    small.kubectl("delete", "pod", small.pods()["worker-1"]["metadata"]["name"], "-n", small.namespace, "--wait=false")
    small.runs(2)
    assert set(nodes_of(small)) == {node}
    assert nodes_of(large) == []


@pytest.mark.usefixtures("_places")
def test_a_gang_that_may_start_with_fewer_members_is_placed_with_so_many(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, namespace: str
) -> None:
    document = needing_most("elastic", str(shared_dir), members=2 * ON_NODE + 1, gangScheduling=GROUPED)
    role, spec = document["spec"]["roles"][0], document["spec"]
    role["minReplicas"] = MEMBERS
    spec["checkpoint"] = {
        "tiers": [{"name": "store", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}]
    }
    spec["recovery"]["shrinkAfterSeconds"] = 30
    gang = submit(document)
    ready = f"{2 * ON_NODE}/{2 * ON_NODE + 1}"
    runs = lambda one: one if (one.get("phase"), one.get("ready")) == ("Running", ready) else None  # noqa: E731
    status = gang.until("it runs with four members", runs, 120)
    assert groups(kubectl, namespace) == {"elastic-0": MEMBERS}
    assert status["size"]["roles"] == [{"name": "worker", "members": 2 * ON_NODE}]
    assert len(nodes_of(gang)) == 2 * ON_NODE


@pytest.mark.usefixtures("_places")
def test_a_group_has_the_priority_of_its_pods(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, namespace: str, urgent: str
) -> None:
    document = needing_most("prior", str(shared_dir), gangScheduling=GROUPED)
    document["spec"]["roles"][0]["template"]["spec"]["priorityClassName"] = urgent
    submit(document).runs(1)
    (group,) = stored(kubectl, namespace)
    if group["apiVersion"] != "scheduling.k8s.io/v1alpha2":
        assert group["spec"]["priority"] == URGENT


def test_gang_scheduling_cannot_be_changed(submit: Submit, shared_dir: Path) -> None:
    gang = submit(needing_most("fixed", str(shared_dir), suspend=True))
    with pytest.raises(RuntimeError, match="gangScheduling can't be changed"):
        gang.patch(gangScheduling=GROUPED)
