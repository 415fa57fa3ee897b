"""`gangctl run` with a gang that exists: after a killed controller or command, with --keep, with another manifest."""

from __future__ import annotations

import signal

import pytest

from gangctl.cluster.local import process
from gangctl.cluster.local.pod_record import controller_pid
from tests.cli.here import Here, manifest
from tests.wait import until

RULES = [
    {"name": "transient", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}},
    {"name": "bad-config", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [78]}},
]


def test_a_killed_controller_restarts_while_workers_continue(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    workers, old = folder.workers(), controller_pid(folder.state)
    assert folder.gangctl("inject", "g", "--kill-controller").returncode == 0
    until("another controller runs", lambda: controller_pid(folder.state) not in {None, old})
    assert "the controller died by SIGKILL; workers continue to train" in run.said
    folder.gangctl("inject", "g", "worker-0", "--exit-code", "9")
    folder.runs_attempt(2)
    assert set(folder.attempts()["worker-1"]) == {1, 2}
    assert not set(folder.workers().values()) & set(workers.values())
    assert folder.job.status.restarts.counted == 1


def test_the_next_run_takes_over_the_gang_of_a_killed_one_without_touching_workers(folder: Here) -> None:
    folder.write(manifest())
    first = folder.run()
    folder.runs_attempt(1)
    workers, uid = folder.workers(), folder.job.metadata.uid
    first.signal(signal.SIGKILL)
    first.wait()
    second = folder.run()
    until("the second one sees them run", folder.is_seen_running)
    assert "it is taken over, its workers are not touched" in second.said
    assert folder.workers() == workers
    assert folder.job.metadata.uid == uid
    assert folder.attempts() == {name: [1] for name in workers}
    second.signal(signal.SIGINT)
    assert second.wait() == 130
    assert folder.left() == []


@pytest.mark.nightly
def test_with_keep_an_interrupted_run_leaves_the_workers_running(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run("--keep")
    folder.runs_attempt(1)
    workers = folder.workers()
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert all(process.is_alive(worker) for worker in workers.values())
    assert controller_pid(folder.state) is None


@pytest.mark.nightly
def test_a_run_changes_the_policy_of_a_running_gang_but_not_its_roles(folder: Here) -> None:
    folder.write(manifest())
    first = folder.run("--keep")
    folder.runs_attempt(1)
    first.signal(signal.SIGINT)
    first.wait()
    folder.write(manifest(replicas=2))
    refused = folder.run()
    assert refused.wait() == 2
    assert "gangctl suspend g" in refused.said
    assert folder.job.metadata.generation == 1
    folder.write(manifest(podFailurePolicy={"rules": RULES}))
    second = folder.run()
    until("it is changed", lambda: "taken over with the manifest's changes" in second.said)
    assert folder.job.metadata.generation == 2
    folder.gangctl("inject", "g", "worker-1", "--exit-code", "78")
    assert second.wait() == 1
    assert "rule bad-config has action FailJob" in second.said


@pytest.mark.nightly
def test_a_new_gang_replaces_one_that_has_ended(folder: Here) -> None:
    folder.write(manifest(ONCE, 1))
    assert folder.run().wait() == 0
    uid = folder.job.metadata.uid
    second = folder.run()
    assert second.wait() == 0
    assert folder.job.metadata.uid != uid
    assert folder.job.status.attempt == 1
    assert "is created; it replaces the one that has succeeded" in second.said


ONCE = ("sh", "-c", 'echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; echo "hello of $RANK"; sleep 0.3')
