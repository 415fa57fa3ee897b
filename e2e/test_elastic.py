"""A gang that loses a node for which there is no other goes on with fewer members, and grows on the next node."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.gangs import CHECKPOINTS, WORKERS, Gang, Kubectl, training
from e2e.test_node_signals import NODE, on
from tests.wait import until

SHRINK_SECONDS, GROW_SECONDS = 60, 10


def elastic(directory: Path) -> dict[str, Any]:
    """Three members that can't share a node, and two are enough."""
    shutil.copy(WORKERS / "elastic.py", directory)
    document = training(
        "elastic",
        f"{CHECKPOINTS}/elastic.py",
        replicas=3,
        directory=str(directory),
        environment={},
        placement={"strategy": "Spread", "mode": "Required"},
        recovery={
            "lostPodGraceSeconds": 5,
            "plannedStopGracePeriodSeconds": 30,
            "shrinkAfterSeconds": SHRINK_SECONDS,
            "growAfterSeconds": GROW_SECONDS,
        },
    )
    document["spec"]["roles"][0]["minReplicas"] = 2
    document["spec"]["checkpoint"]["tiers"][0]["reshardable"] = True
    return document


def begun(directory: Path, rank: int) -> list[str]:
    """Attempt, member and size of each start of the rank."""
    path = directory / f"rank-{rank}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.removeprefix("begins ") for line in lines if line.startswith("begins")]


def steps(directory: Path) -> list[tuple[int, str]]:
    """Each step that rank 0 has made, with the value that it led to."""
    lines = [line.split() for line in (directory / "rank-0").read_text().splitlines() if line.startswith("step")]
    return [(int(number), value) for _, number, value in lines]


@pytest.mark.nightly
def test_a_gang_without_a_node_goes_on_with_fewer_members_and_grows_on_the_next(
    third_node: Any, lab: Any, submit: Callable[[dict[str, Any]], Gang], shared_dir: Path
) -> None:
    gang = submit(elastic(shared_dir))
    gang.runs(1)
    gang.until("a checkpoint", lambda _: any(shared_dir.glob("step-*/DONE")))
    third_node.machine.kill()
    gang.until(
        "attempt 2 runs with two",
        lambda one: (one["attempt"], one["phase"], one["ready"]) == (2, "Running", "2/3"),
        240,
    )
    until("both ranks begin again", lambda: all(len(begun(shared_dir, rank)) == 2 for rank in (0, 1)), 60)
    assert [begun(shared_dir, rank)[1].partition(" ")[2].split(" ", 1)[1] for rank in (0, 1)] == ["2 of 3"] * 2
    status = gang.until("the condition", lambda one: one if _is_degraded(one) else None)
    assert status["incidents"][0]["cause"]["reason"] == "NodeLost"
    assert status["size"]["roles"] == [{"name": "worker", "members": 2}]
    node = lab.add_node(4)
    lab.load(lab.images.controller(), lab.images.sidecar(), lab.images.examples(), nodes=[node])
    status = gang.runs(3, 300)
    until("rank 2 begins again", lambda: len(begun(shared_dir, 2)) == 2, 60)
    last = status["incidents"][0]
    assert (last["cause"]["reason"], last["charged"], last.get("lostSteps", 0)) == ("Growing", False, 0)
    assert begun(shared_dir, 2)[1].endswith("3 of 3")
    until("it trains", lambda: steps(shared_dir)[-1][0] > last["restoredStep"], 60)
    values: dict[int, str] = {}
    for step, value in steps(shared_dir):
        assert values.setdefault(step, value) == value  # What was repeated after the fault came out the same.
    numbers = [step for step, _ in steps(shared_dir)]
    assert sorted(values) == list(range(1, max(numbers) + 1))
    assert numbers.count(last["restoredStep"] + 1) == 1  # Growing has cost no step.


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
def test_a_node_that_comes_and_goes_changes_the_size_less_and_less_often(
    kubectl: Kubectl, submit: Callable[[dict[str, Any]], Gang], shared_dir: Path
) -> None:
    document = elastic(shared_dir)
    document["spec"]["recovery"] |= {"shrinkAfterSeconds": 3, "growAfterSeconds": 5}
    gang = submit(document)
    gang.runs(1)
    waited = []
    for number in range(1, 4):
        gang.until("a checkpoint", lambda _: any(shared_dir.glob("step-*/DONE")))
        kubectl("cordon", NODE)
        try:
            (member,) = on(gang, NODE)
            pod = gang.pods()[member]["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
            path = f"/api/v1/namespaces/{gang.namespace}/pods/{pod}/eviction"
            kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
            smaller = gang.until(f"two run, loss {number}", _of_two, 240)
        finally:
            kubectl("uncordon", NODE)
        status = gang.runs(smaller["attempt"] + 1, 300)
        assert status["incidents"][0]["cause"]["reason"] == "Growing"
        changed, stopped = (datetime.fromisoformat(at) for at in (smaller["size"]["time"], status["size"]["stops"][-1]))
        waited.append((stopped - changed).total_seconds())
    assert all(seconds >= 5 * 2**at for at, seconds in enumerate(waited)), waited


def _of_two(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if (status["phase"], status["ready"]) == ("Running", "2/3") else None


def _is_degraded(status: dict[str, Any]) -> bool:
    found = {one["type"]: one for one in status["conditions"]}
    return bool(found.get("Degraded", {}).get("reason") == "Smaller")
