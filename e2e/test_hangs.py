"""One rank that stands still while the others go on, and a checkpoint that no attempt can load."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e import process_faults
from e2e.clusters import Cluster
from e2e.gangs import Gang, plain, trainers
from e2e.jaeger import Jaeger
from e2e.whys import why

Submit = Callable[[dict[str, Any]], Gang]
LIMIT = 4
"""Seconds: ten steps of a trainer."""
KEPT = 3
"""So many checkpoints examples/train_plain.py keeps."""


def test_a_rank_that_is_stopped_while_the_others_go_on_hangs_and_is_blamed(
    cluster: Cluster, jaeger: Jaeger, submit: Submit, shared_dir: Path
) -> None:
    progress = {"timeoutSeconds": LIMIT, "onHang": "Restart"}
    gang = submit(trainers("behind", replicas=3, directory=shared_dir, traces=jaeger.endpoint, progress=progress))
    gang.runs(1)
    uids = gang.uids()
    # By then each rank has reported more than once: from its first report alone it isn't known how often it reports.
    gang.until("a checkpoint of step 10 or later", lambda _: max(saved(shared_dir), default=0) >= 10)
    stopped = process_faults.worker(uids["worker-2"])
    stopped.send(signal.SIGSTOP)
    status = gang.runs(2)
    incident = status["incidents"][0]
    assert (incident["cause"]["reason"], incident["cause"]["member"]) == ("Hang", "worker-2")
    assert gang.uids() == uids
    assert not stopped.alive
    assert incident["stacks"]["member"] == "worker-2"
    assert "stopped" in incident["stacks"]["text"]
    assert incident["restoredStep"] >= 2
    last = why(cluster, gang)["restarts"]["last"]["incident"]
    assert (last["reason"], last["cause"].startswith("worker-2")) == ("Hang", True)
    assert any(each.startswith("worker-2 was in ") for each in last["evidence"])


def test_a_newest_checkpoint_that_no_attempt_can_load_is_given_up_for_the_one_before(
    cluster: Cluster, submit: Submit, shared_dir: Path
) -> None:
    document = plain("corrupt", replicas=2, directory=str(shared_dir), steps=400, recovery={"replaceAfter": 100})
    document["spec"]["checkpoint"]["fallbackAfter"] = 2
    gang = submit(document)
    gang.runs(1)
    gang.until("three checkpoints", lambda _: len(saved(shared_dir)) == KEPT)
    writer = process_faults.worker(gang.uids()["worker-0"])
    writer.send(signal.SIGSTOP)
    _, older, newest = saved(shared_dir)
    (shared_dir / f"step-{newest}/state.json").write_text("{")
    process_faults.kill(writer)
    gang.ends("Succeeded")
    restored = [incident["restoredStep"] for incident in gang.status["incidents"]]
    assert restored == [older, newest, newest], "newest first; a step gets as many attempts as fallbackAfter says"
    rejected = gang.kubectl("get", "events", "-n", gang.namespace, "-o", "jsonpath={.items[*].reason}")
    assert "StepRejected" in rejected.split()
    told = why(cluster, gang)["restarts"]
    assert told["last"]["rejectedSteps"] == [f"step {newest} of tier shared"]
    assert told["last"]["incident"]["restoredStep"] == older
    assert told["count"] == 3


def saved(directory: Path) -> list[int]:
    """The steps of complete checkpoints, ascending."""
    return sorted(int(done.parent.name.removeprefix("step-")) for done in directory.glob("step-*/DONE"))
