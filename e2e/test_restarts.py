"""A fault inside a pod restarts the gang in place: same pods, same containers, one restored step for all ranks."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.gangs import Gang, has_stepped, plain, sleepers
from gangctl.cluster.kube.injection import STATE_DIRECTORY
from gangsidecar.start import OWN
from gangsidecar.supervisor.workers import IMPORTS
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
REPLACE_NEVER = {"replaceAfter": 100}


def result(shared_dir: Path) -> dict[str, Any]:
    """The state in the newest checkpoint."""
    newest = max(shared_dir.glob("step-*/DONE"), key=lambda done: int(done.parent.name.removeprefix("step-")))
    return dict(json.loads((newest.parent / "state.json").read_text()))


def progressed(shared_dir: Path, beyond: int) -> bool:
    """Whether there is a complete checkpoint beyond this step."""
    return any(int(done.parent.name.removeprefix("step-")) > beyond for done in shared_dir.glob("step-*/DONE"))


def test_a_killed_worker_restarts_all_workers_and_nothing_else(submit: Submit, shared_dir: Path) -> None:
    gang = submit(plain("killed", replicas=4, directory=str(shared_dir), steps=400, recovery=REPLACE_NEVER))
    gang.runs(1)
    uids, starts = gang.uids(), gang.container_starts()
    before = {member: process_faults.worker(uid) for member, uid in uids.items()}
    assert len({pod["spec"]["nodeName"] for pod in gang.pods().values()}) > 1
    gang.until("a checkpoint", lambda _: progressed(shared_dir, 0))
    process_faults.kill(before["worker-2"])
    status = gang.runs(2)
    after = {member: process_faults.worker(uid) for member, uid in uids.items()}
    assert gang.uids() == uids
    assert gang.container_starts() == starts
    assert all(after[member] != before[member] and not before[member].alive for member in uids)
    cause = status["incidents"][0]["cause"]
    assert (cause["member"], cause["signal"]) == ("worker-2", "SIGKILL")
    assert status["restarts"] == {"counted": 1, "inWindow": 1, "uncounted": 0, "withoutStep": 1}
    restored = {gang.restored(member, workers=2) for member in uids}
    assert restored == {status["incidents"][0]["restoredStep"]}
    assert min(restored) > 0
    gang.ends("Succeeded")
    disturbed = result(shared_dir)

    undisturbed = shared_dir / "undisturbed"
    other = submit(plain("undisturbed", replicas=4, directory=str(undisturbed), steps=400))
    other.ends("Succeeded")
    assert result(undisturbed) == disturbed  # bit by bit: JSON has floats exactly


@pytest.mark.parametrize(
    ("code", "counted", "phase"),
    [(75, 0, "Running"), pytest.param(3, 1, "Running", marks=pytest.mark.nightly), (78, 0, "Failed")],
)
def test_an_exit_code_does_what_its_rule_says(
    submit: Submit, shared_dir: Path, code: int, counted: int, phase: str
) -> None:
    document = sleepers("codes", replicas=2, directory=str(shared_dir), recovery=REPLACE_NEVER)
    document["spec"]["podFailurePolicy"] = {
        "rules": [
            {"name": "bad-config", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [64, 78]}},
            {"name": "asked-to-leave", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}},
        ]
    }
    words = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"]
    words[2] = f'trap "exit {code}" USR1; echo up > /checkpoints/$GANG_MEMBER; while :; do sleep 0.1; done'
    gang = submit(document)
    gang.runs(1)
    uids = gang.uids()
    gang.until("worker-1's trap", lambda _: (shared_dir / "worker-1").exists())
    process_faults.worker(uids["worker-1"]).send(signal.SIGUSR1)
    if phase == "Failed":
        status = gang.ends("Failed")
        assert status["attempt"] == 1 or status["incidents"][0]["cause"]["rule"] == "bad-config"
        assert "bad-config" in status["message"]
        return
    status = gang.runs(2)
    assert gang.uids() == uids
    assert status["incidents"][0]["cause"]["exitCode"] == code
    assert status["restarts"]["counted"] == counted


def test_a_killed_container_restarts_in_its_pod(submit: Submit, shared_dir: Path) -> None:
    gang = submit(plain("container", replicas=4, directory=str(shared_dir), steps=100000, recovery=REPLACE_NEVER))
    gang.runs(1)
    uids, starts = gang.uids(), gang.container_starts()
    others = {member: process_faults.supervisor(uid) for member, uid in uids.items() if member != "worker-1"}
    gang.until("a checkpoint", lambda _: progressed(shared_dir, 0))
    process_faults.kill(process_faults.supervisor(uids["worker-1"]))
    status = gang.runs(2)
    assert gang.uids() == uids
    until("the kubelet reports the new start", lambda: gang.container_starts()["worker-1"] != starts["worker-1"])
    after = gang.container_starts()
    assert {member: one for member, one in after.items() if member != "worker-1"} == {
        member: one for member, one in starts.items() if member != "worker-1"
    }
    assert all(one.alive for one in others.values())
    assert status["incidents"][0]["cause"]["member"] == "worker-1"
    assert {gang.restored(member, workers=2) for member in uids if member != "worker-1"} == {
        status["incidents"][0]["restoredStep"]
    }


def test_a_killed_sidecar_disturbs_no_worker(submit: Submit, shared_dir: Path) -> None:
    gang = submit(plain("sidecar", replicas=2, directory=str(shared_dir), steps=100000))
    gang.runs(1)
    uids = gang.uids()
    before = {member: process_faults.worker(uid) for member, uid in uids.items()}
    first = process_faults.sidecar(uids["worker-0"])
    process_faults.kill(first)
    gang.until("another sidecar", lambda _: process_faults.sidecar(uids["worker-0"]) != first)
    # The new sidecar reports a fault as the old one did.
    process_faults.kill(before["worker-0"])
    status = gang.runs(2)
    assert gang.uids() == uids
    assert status["incidents"][0]["cause"]["signal"] == "SIGKILL"
    assert status["restarts"]["counted"] == 1


@pytest.mark.nightly
def test_ten_restarts_in_a_row_restart_no_container_and_wait_for_no_backoff(submit: Submit, shared_dir: Path) -> None:
    recovery = {"replaceAfter": 100, "budget": {"type": "Unlimited"}}
    gang = submit(sleepers("ten", replicas=4, directory=str(shared_dir), steps=True, recovery=recovery))
    gang.runs(1)
    uids, starts = gang.uids(), gang.container_starts()
    for attempt in range(2, 12):
        until("a step", partial(has_stepped, shared_dir, attempt - 1))
        process_faults.kill(process_faults.worker(uids[f"worker-{attempt % 4}"]))
        gang.runs(attempt)
    assert (gang.uids(), gang.container_starts()) == (uids, starts)
    assert "BackOff" not in gang.kubectl("get", "pods", "-n", gang.namespace)


@pytest.mark.timeout(1800)  # it starts 16 processes with PyTorch, from an image of 1.6 GB
@pytest.mark.usefixtures("torch")
def test_torchrun_and_env_reach_the_same_loss_after_a_restart(submit: Submit, shared_dir: Path) -> None:
    losses = {}
    for launch in ("Command", "Torchrun"):
        directory = shared_dir / launch
        gang = submit(pytorch(launch.lower(), launch, str(directory)))
        gang.runs(1, 300)
        uids = gang.uids()
        until("a checkpoint", partial(progressed, directory, 40), 300)
        state = Path(f"/proc/{process_faults.supervisor(uids['worker-0']).pid}/root{STATE_DIRECTORY}")
        modules = [name for file in state.glob(f"{IMPORTS}-*") for name in file.read_text().split()]
        assert "torch.optim" in modules
        assert not [one for one in modules if one.startswith(OWN)], "a template can't have them, nor what imports them"
        process_faults.kill(process_faults.worker(uids["worker-3"]))
        gang.ends("Succeeded", 600)
        assert gang.status["attempt"] == 2
        assert gang.uids() in (uids, {})
        losses[launch] = json.loads((directory / "result.json").read_text())["loss_hex"]
    assert len(set(losses.values())) == 1


def pytorch(name: str, launch: str, directory: str) -> dict[str, Any]:
    """The example of the docs, with fewer steps."""
    document = plain(name, replicas=4, directory=directory, recovery=REPLACE_NEVER)
    role = document["spec"]["roles"][0]
    container = role["template"]["spec"]["containers"][0]
    script = ["/opt/gangctl/examples/train_torch.py", "--steps", "300"]
    role["launch"] = launch
    container["image"] = "gangctl/examples-torch:e2e"
    container["command"] = ["torchrun", *script] if launch == "Torchrun" else ["python3", *script]
    return document
