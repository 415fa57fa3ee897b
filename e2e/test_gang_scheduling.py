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
from e2e.scarce import MEMBERS, first_to_run, needing_most, nodes_of, places, waits_whole
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
GROUPED = {"type": "PodGroup"}


@pytest.fixture
def _places(cluster: Cluster, lab: Lab) -> Iterator[None]:  # noqa: ARG001 - its scheduler has the feature gates
    with places(cluster):
        yield


def groups(kubectl: Kubectl, namespace: str) -> dict[str, int]:
    """The PodGroups that aren't being deleted, and how many pods each asks for."""
    found = json.loads(kubectl("get", "podgroups.scheduling.k8s.io", "-n", namespace, "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: one["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for one in found
        if "deletionTimestamp" not in one["metadata"]
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


def test_gang_scheduling_cannot_be_changed(submit: Submit, shared_dir: Path) -> None:
    gang = submit(needing_most("fixed", str(shared_dir), suspend=True))
    with pytest.raises(RuntimeError, match="gangScheduling can't be changed"):
        gang.patch(gangScheduling=GROUPED)
