"""`gangctl why` on real nodes: a gang that waits though there are enough devices, a bad rollout, a missing right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.accelerators import EACH, RESOURCE, gang_of, holder
from e2e.cluster.device_plugin import Devices
from e2e.clusters import Cluster
from e2e.gangs import Gang, sleepers
from e2e.whys import asked, why
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]


def found(cluster: Cluster, gang: Gang, kind: str, *, kubeconfig: Path | None = None) -> dict[str, Any]:
    """The answer's finding of this kind, once there is one."""

    def first() -> dict[str, Any] | None:
        told = why(cluster, gang, kubeconfig=kubeconfig)["findings"]
        return next((one for one in told if one["kind"] == kind and "0/" in one.get("told", one["seen"])), None)

    return until(f"{gang.name} is told as {kind}", first, every=0.5)


@pytest.mark.usefixtures("plugged")
def test_a_gang_that_waits_though_there_are_enough_devices_is_told_what_would_have_to_move(
    cluster: Cluster, submit: Submit, shared_dir: Path, namespace: str
) -> None:
    for number in (1, 2):
        pod = holder(f"notebook-{number}", f"node-{number}", 2)
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(pod))
    gang = submit(gang_of("scattered", shared_dir, 1, each=3))
    finding = found(cluster, gang, "Fragmented")
    told = {one["node"]: (one["needs"], one["free"], one["of"], one["taken"]) for one in finding["nodes"]}
    assert told == {f"node-{number}": ("3", "2", str(EACH), f"{namespace}/notebook-{number} (2)") for number in (1, 2)}
    (move,) = finding["moves"]["moves"]
    assert (finding["moves"]["node"], move["pod"], move["to"]) == ("node-1", f"{namespace}/notebook-1", "node-2")
    text = asked(cluster, gang)
    assert "enough in total, not on one node" in " ".join(text.split())
    scheduler = gang.pods()["worker-0"]["status"]["conditions"]
    (said,) = (one["message"] for one in scheduler if one["type"] == "PodScheduled")
    assert said.startswith(finding["told"]), "the walk counts as the scheduler does"
    cluster.kubectl("delete", "pod", "notebook-1", "-n", namespace)
    gang.runs(1)
    assert why(cluster, gang)["findings"] == []


def test_devices_that_a_bad_rollout_takes_from_one_node_are_told_with_what_is_left(
    plugged: dict[str, Devices], cluster: Cluster, submit: Submit, shared_dir: Path
) -> None:
    document = gang_of("rollout", shared_dir, 6)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    gang = submit(document)
    gang.runs(1)
    bad = [name for name in plugged if name.startswith("accelerator-2-")]
    for name in bad:
        plugged[name].mark(name, healthy=False)
    finding = found(cluster, gang, "NotEnough")
    rows = {one["node"]: one["of"] for one in finding["nodes"] if "of" in one}
    assert rows == {"node-1": str(EACH), "node-2": "0"}
    assert f"Insufficient {RESOURCE}" in finding["told"]
    last = why(cluster, gang)["restarts"]["last"]["incident"]
    assert (last["reason"], last["outcome"]) == ("DeviceLost", "Open")
    assert "node node-2" in last["evidence"]
    for name in bad:
        plugged[name].mark(name, healthy=True)
    gang.runs(2)


def test_a_user_who_may_not_list_nodes_is_told_which_right_is_missing_and_all_else(
    submit: Submit, shared_dir: Path, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    document = sleepers("huge", replicas=1, directory=str(shared_dir))
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "999"}}
    gang = submit(document)
    limited = viewer(cluster, namespace, tmp_path)
    finding = found(cluster, gang, "Unschedulable", kubeconfig=limited)
    assert "Insufficient cpu" in finding["seen"]
    told = why(cluster, gang, kubeconfig=limited)
    assert [(one["verb"], one["resource"]) for one in told["missingRights"]] == [("list", "nodes"), ("list", "pods")]
    assert "--clusterrole=gangctl-explainer" in asked(cluster, gang, kubeconfig=limited)
    binding = f"explain-{namespace}"
    cluster.kubectl(
        *("create", "clusterrolebinding", binding, "--clusterrole=gangctl-explainer"),
        f"--serviceaccount={namespace}:viewer",
    )
    try:
        finding = found(cluster, gang, "TooLarge", kubeconfig=limited)
        assert finding["members"] == ["worker-0"]
        assert "missingRights" not in why(cluster, gang, kubeconfig=limited)
    finally:
        cluster.kubectl("delete", "clusterrolebinding", binding)


def viewer(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """The kubeconfig of a service account that may only view one namespace."""
    cluster.kubectl("create", "serviceaccount", "viewer", "-n", namespace)
    account = f"--serviceaccount={namespace}:viewer"
    cluster.kubectl("create", "rolebinding", "viewer", "-n", namespace, "--clusterrole=view", account)
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "viewer", "-n", namespace).strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    limited = folder / "viewer.kubeconfig"
    limited.write_text(yaml.safe_dump(config))
    return limited
