"""Checkpoints in memory, and a node that loses its power: a peer on another node has the copy."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.test_memory import FIRST, LAG, Submit, has_made, memory
from e2e.test_node_faults import SOON, placed


@pytest.mark.timeout(900)
def test_a_lost_node_costs_no_step_that_all_ranks_had(
    third_node: Any, cluster: Cluster, submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.image("examples-torch")  # on the third node as well
    plain = submit(memory("plain", shared_dir / "plain"))
    document = memory("memory", shared_dir / "memory")
    document["spec"] |= {"placement": {"strategy": "Spread", "mode": "Preferred"}, "recovery": SOON}
    # The emptiest node would get two members, so it gets one by a replacement.
    cluster.kubectl("cordon", "node-3")
    gang = submit(document)
    gang.runs(1, 240)
    cluster.kubectl("uncordon", "node-3")
    nodes = placed(gang)
    moved = next(member for member, node in nodes.items() if list(nodes.values()).count(node) > 1)
    cluster.kubectl("delete", "pod", gang.pods()[moved]["metadata"]["name"], "-n", gang.namespace, "--wait=false")
    gang.runs(2, 240)
    gang.until(f"it has made step {FIRST}", partial(has_made, FIRST), 300)
    lost = [member for member, node in placed(gang).items() if node == "node-3"]
    third_node.machine.kill()
    point = gang.runs(3, 240)["restorePoint"]
    assert (point["tier"], lost) == ("ram", [moved])
    assert point["step"] >= FIRST - LAG
    assert "node-3" not in placed(gang).values()
    incident = gang.status["incidents"][0]
    assert incident["cause"]["reason"] == "NodeLost"
    assert incident["lostSteps"] <= LAG
    for one in (gang, plain):
        one.ends("Succeeded", 300)
    losses = [json.loads((shared_dir / name / "result.json").read_text()) for name in ("plain", "memory")]
    assert losses[0] == losses[1], "the same to the last bit"
    with capsys.disabled():
        phases = ", ".join(f"{name} {value} ms" for name, value in incident["milliseconds"].items())
        print(
            f"\n  {lost[0]} with its node: restored step {point['step']}, {incident['lostSteps']} lost, {phases} ",
            end="",
        )
