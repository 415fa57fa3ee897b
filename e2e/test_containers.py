"""What happens to the containers of a pod: a user's own are the user's matter, and a start that can't work is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.gangs import CHECKPOINTS, Gang, sleepers
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
IMAGE = "gangctl/examples:e2e"


def ends_of(gang: Gang, member: str) -> dict[str, str]:
    """Container of the member's pod -> how it ended last, of those that have ended."""
    status = gang.pods()[member]["status"]
    found = {one["name"]: {**one.get("lastState", {}), **one["state"]} for one in status.get("containerStatuses", [])}
    return {name: state["terminated"]["reason"] for name, state in found.items() if "terminated" in state}


def test_containers_beside_the_worker_may_fail(submit: Submit, shared_dir: Path) -> None:
    document = sleepers("beside", replicas=2, directory=str(shared_dir), recovery={"replaceAfter": 100})
    spec = document["spec"]["roles"][0]["template"]["spec"]
    once = 'test -e "/checkpoints/$HOSTNAME" || { touch "/checkpoints/$HOSTNAME"; exit 1; }'
    mounts = [{"name": "checkpoints", "mountPath": CHECKPOINTS}]
    spec["restartPolicy"] = "OnFailure"
    spec["initContainers"] = [{"name": "fetch", "image": IMAGE, "command": ["sh", "-c", once], "volumeMounts": mounts}]
    memory = {"limits": {"memory": "16Mi"}}
    spec["containers"] += [
        {"name": "fails", "image": IMAGE, "restartPolicy": "Never", "command": ["sh", "-c", "exit 1"]},
        {"name": "logs", "image": IMAGE, "command": ["tail", "/dev/zero"], "resources": memory},
    ]
    gang = submit(document)
    gang.runs(1)
    uids = gang.uids()
    until("both ends", lambda: {"fails", "logs"} <= ends_of(gang, "worker-1").keys() or None, every=0.5)
    inits = {one["name"]: one for one in gang.pods()["worker-0"]["status"]["initContainerStatuses"]}
    assert inits["fetch"]["restartCount"] == 1, "the kubelet has tried the init container again"
    assert gang.status["attempt"] == 1
    process_faults.kill(process_faults.worker(uids["worker-0"]))
    status = gang.runs(2)
    assert gang.uids() == uids
    cause = status["incidents"][0]["cause"]
    assert (cause["reason"], cause["member"], cause["signal"]) == ("Signal", "worker-0", "SIGKILL")
    assert ends_of(gang, "worker-1")["logs"] in {"OOMKilled", "Error"}


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("localhost/gangctl-e2e/pause:1", "o such file|not found"),
        ("gangctl/Examples:e2e", "InvalidImageName: .*lowercase"),
    ],
    ids=["no command", "no image"],
)
def test_a_start_that_can_not_work_is_told_and_ends_the_gang(
    submit: Submit, shared_dir: Path, image: str, words: str
) -> None:
    # Members that fail one after the other would each get a new pod at their second failure.
    document = sleepers("never", replicas=2, directory=str(shared_dir), recovery={"replaceAfter": 100})
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container |= {"image": image, "command": ["/opt/no-such-command"]}
    gang = submit(document)
    gang.until("the runtime's words", lambda status: re.search(words, status.get("message", "")))
    status = gang.ends("Failed")
    failed = next(one for one in status["conditions"] if one["type"] == "Failed")
    assert failed["reason"] == "StartFailed"
    assert re.search(words, status["message"])
    assert not status.get("replaced"), "no pod was replaced"
