"""Gangs that the plugin Coscheduling of scheduler-plugins places as a whole, by PodGroups that the user creates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl
from e2e.queues.coscheduling import coscheduling
from e2e.scarce import MEMBERS, first_to_run, needing_most, nodes_of, places, waits_whole

Submit = Callable[[dict[str, Any]], Gang]
EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduling" / "scheduler-plugins.yaml"


@pytest.fixture
def _scheduler(cluster: Cluster, lab: Lab) -> Iterator[None]:
    with coscheduling(lab), places(cluster):
        yield


def like_the_example(name: str, directory: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The PodGroup of the example, and a gang with the label and the scheduler of the example's."""
    group, example = yaml.safe_load_all(EXAMPLE.read_text())
    shown = example["spec"]["roles"][0]["template"]
    made = needing_most(name, directory)
    template = made["spec"]["roles"][0]["template"]
    template["metadata"] = {"labels": dict.fromkeys(shown["metadata"]["labels"], name)}
    template["spec"]["schedulerName"] = shown["spec"]["schedulerName"]
    assert group["spec"]["minMember"] == MEMBERS
    return group | {"metadata": {"name": name}}, made


@pytest.mark.usefixtures("_scheduler")
def test_two_gangs_that_each_need_most_of_a_cluster_run_one_after_the_other(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, namespace: str
) -> None:
    documents = [like_the_example(name, str(shared_dir / name)) for name in ("a", "b")]
    for group, _ in documents:
        kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(group))
    a, b = (submit(document) for _, document in documents)
    first, second = first_to_run((a, b))
    first.runs(1)
    waits_whole(second)

    # A pod that is replaced has the label of the group, where the others count for it.
    before = first.uids()
    kubectl("delete", "pod", first.pods()["worker-1"]["metadata"]["name"], "-n", namespace, "--wait=false")
    first.runs(2)
    after = first.uids()
    assert {member for member in before if before[member] != after[member]} == {"worker-1"}
    assert nodes_of(second) == []

    first.patch(suspend=True)
    # Rejected "optimistically" while the first group went, its pods wait until the scheduler looks at all: 5 minutes.
    second.runs(1, seconds=400)
    assert len(nodes_of(second)) == MEMBERS
