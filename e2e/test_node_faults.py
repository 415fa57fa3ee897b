"""Killed and frozen nodes, drains, deletions: the member moves to another node, the others wait in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.gangs import Gang, has_stepped, plain, sleepers
from e2e.installation import CRDS
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
SOON = {"lostPodGraceSeconds": 5, "replaceAfter": 100}


def placed(gang: Gang) -> dict[str, str]:
    """Member -> node of its pod."""
    return {member: pod["spec"]["nodeName"] for member, pod in gang.pods().items()}


@pytest.mark.nightly
def test_a_member_on_a_killed_node_moves_to_another_node_and_the_others_wait_in_place(
    third_node: Any, submit: Submit, shared_dir: Path
) -> None:
    document = sleepers("dead", replicas=3, directory=str(shared_dir), recovery=SOON)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    gang = submit(document)
    gang.runs(1)
    uids, nodes = gang.uids(), placed(gang)
    lost = next(member for member, node in nodes.items() if node == "node-3")
    workers = {member: process_faults.supervisor(uid) for member, uid in uids.items() if member != lost}
    third_node.machine.kill()
    status = gang.runs(2, 180)
    after, now = gang.uids(), placed(gang)
    assert {member: uid for member, uid in after.items() if member != lost} == {
        member: uid for member, uid in uids.items() if member != lost
    }
    assert after[lost] != uids[lost]
    assert now[lost] != "node-3"
    assert all(one.alive for one in workers.values())
    assert status["incidents"][0]["cause"]["reason"] == "NodeLost"
    for member in workers:
        assert [line.split()[1] for line in (shared_dir / member).read_text().splitlines()] == ["1", "2"]


@pytest.mark.nightly
def test_a_thawed_node_does_not_run_an_old_worker_beside_the_new_one(
    third_node: Any, submit: Submit, shared_dir: Path
) -> None:
    document = sleepers("thawed", replicas=3, directory=str(shared_dir), recovery=SOON)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    gang = submit(document)
    gang.runs(1)
    uids, nodes = gang.uids(), placed(gang)
    lost = next(member for member, node in nodes.items() if node == "node-3")
    old = process_faults.worker(uids[lost])
    began = time.monotonic()
    third_node.machine.freeze()
    gang.runs(2, 180)
    until("the node has been frozen for two minutes", lambda: time.monotonic() > began + 120, 130, every=1)
    third_node.machine.thaw()
    until("the end of the old worker", lambda: not old.alive)
    status = gang.status
    assert (status["attempt"], status["phase"]) == (2, "Running")
    for member in uids:
        attempts = [line.split()[1] for line in (shared_dir / member).read_text().splitlines()]
        assert attempts == ["1", "2"]


@pytest.mark.nightly
def test_faults_are_judged_alike_on_a_node_whose_clock_is_an_hour_off(
    shifted_node: Any, submit: Submit, shared_dir: Path
) -> None:
    document = sleepers("shifted", replicas=3, directory=str(shared_dir), recovery=SOON, steps=True)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    gang = submit(document)
    gang.runs(1)
    uids, nodes = gang.uids(), placed(gang)
    there = next(member for member, node in nodes.items() if node == shifted_node.name)
    other = next(member for member, node in nodes.items() if node != shifted_node.name)
    status = gang.pods()[there]["status"]["containerStatuses"][0]
    started = datetime.fromisoformat(status["state"]["running"]["startedAt"]).timestamp()
    assert started - time.time() == pytest.approx(shifted_node.machine.ahead, abs=300)

    def strike(member: str, fault: Callable[[], object]) -> dict[str, Any]:
        attempt = gang.status["attempt"]
        until("a step", lambda: has_stepped(shared_dir, attempt))
        struck = time.time()
        fault()
        incident: dict[str, Any] = gang.runs(attempt + 1)["incidents"][0]
        cause = incident["cause"]
        assert cause["member"] == member
        assert datetime.fromisoformat(cause["time"]).timestamp() == pytest.approx(struck, abs=5)
        assert max(incident["milliseconds"].values()) < 60_000
        return {key: cause.get(key) for key in ("reason", "signal", "exact", "level", "action")}

    def strike_both(fault: Callable[[str], object]) -> None:
        assert strike(there, partial(fault, there)) == strike(other, partial(fault, other))

    strike_both(lambda member: process_faults.kill(process_faults.worker(uids[member])))
    strike_both(lambda member: process_faults.kill(process_faults.supervisor(uids[member])))
    assert gang.uids() == uids
    delete = ("delete", "pod", "-n", gang.namespace, "--force", "--grace-period=0")
    strike_both(lambda member: gang.kubectl(*delete, f"shifted-{member}-0"))
    shifted_node.machine.kill()
    status = gang.runs(8, 180)
    assert status["incidents"][0]["cause"]["reason"] == "NodeLost"
    assert status["restarts"]["counted"] == 4


def test_a_deleted_pod_is_replaced_and_not_charged(submit: Submit, shared_dir: Path) -> None:
    gang = submit(sleepers("deleted", replicas=3, directory=str(shared_dir)))
    gang.runs(1)
    uids = gang.uids()
    gang.kubectl("delete", "pod", "deleted-worker-1-0", "-n", gang.namespace, "--wait=false")
    status = gang.runs(2)
    after = gang.uids()
    assert [member for member in uids if uids[member] != after[member]] == ["worker-1"]
    assert status["restarts"]["counted"] == 0
    assert gang.pods()["worker-1"]["metadata"]["name"] == "deleted-worker-1-1"


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
def test_a_drain_moves_members_with_the_planned_grace_and_is_not_charged(submit: Submit, shared_dir: Path) -> None:
    document = sleepers("drained", replicas=3, directory=str(shared_dir))
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    gang = submit(document)
    gang.runs(1)
    before = placed(gang)
    moved = next(member for member, node in before.items() if node == "node-3")
    gang.kubectl("drain", "node-3", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s", "--force")
    status = gang.runs(2)
    assert placed(gang)[moved] != "node-3"
    assert status["restarts"]["counted"] == 0
    budgets = gang.kubectl("get", "pdb", "-n", gang.namespace, "-o", "jsonpath={.items[*].spec.minAvailable}")
    assert budgets == "2"


@pytest.mark.nightly
def test_suspend_deletes_the_pods_and_resume_restores_the_checkpoint(submit: Submit, shared_dir: Path) -> None:
    gang = submit(plain("paused", replicas=2, directory=str(shared_dir), steps=100000))
    gang.runs(1)
    gang.until("a checkpoint", lambda _: any(shared_dir.glob("step-*/DONE")))
    gang.patch(suspend=True)
    gang.until("its pods are gone", lambda status: status["phase"] == "Suspended" and not gang.pods())
    assert gang.status["attempt"] == 1
    gang.patch(suspend=False)
    status = gang.runs(2)
    assert status["restarts"]["counted"] == 0
    assert {gang.restored(member) for member in ("worker-0", "worker-1")} == {status["restorePoint"]["step"]}
    assert status["restorePoint"]["step"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize("restarting", [False, True])
def test_a_deleted_gang_leaves_nothing(submit: Submit, shared_dir: Path, *, restarting: bool) -> None:
    gang = submit(sleepers("gone", replicas=3, directory=str(shared_dir)))
    gang.runs(1)
    supervisors = [process_faults.supervisor(uid) for uid in gang.uids().values()]
    if restarting:
        process_faults.kill(process_faults.worker(gang.uids()["worker-1"]))
    gang.kubectl("delete", "gj", "gone", "-n", gang.namespace, "--timeout=60s")
    until("no pod is left", lambda: not gang.pods())
    until("no process is left", lambda: not any(one.alive for one in supervisors))
    assert gang.kubectl("get", "pdb", "-n", gang.namespace, "-o", "name") == ""


@pytest.mark.nightly
def test_a_restart_token_restarts_once_and_is_not_charged(submit: Submit, shared_dir: Path) -> None:
    gang = submit(sleepers("token", replicas=2, directory=str(shared_dir)))
    gang.runs(1)
    uids = gang.uids()
    gang.patch(restartToken="please")
    status = gang.runs(2)
    assert gang.uids() == uids
    assert (status["restarts"]["counted"], status["observedRestartToken"]) == (0, "please")


@pytest.mark.nightly
def test_an_upgrade_of_the_crd_does_not_disturb_running_gangs(submit: Submit, shared_dir: Path) -> None:
    gang = submit(sleepers("upgraded", replicas=2, directory=str(shared_dir)))
    gang.runs(1)
    uids, workers = gang.uids(), [process_faults.worker(uid) for uid in gang.uids().values()]
    gang.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    gang.patch(restartToken="after")
    gang.runs(2)
    assert gang.uids() == uids
    assert not any(one.alive for one in workers)
