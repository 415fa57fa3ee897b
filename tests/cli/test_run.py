"""`gangctl run` end to end: real controllers, sidecars, supervisors and workers."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gangctl.cluster.local import process
from gangctl.cluster.local.pod_processes import controller_pid
from tests.cli.here import LOOP, Here, last_json, manifest, until

ONCE = ("sh", "-c", 'echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; echo "hello of $RANK"; sleep 0.3')
FAILS_ONCE = (
    "sh",
    "-c",
    'echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; [ "$GANG_ATTEMPT$RANK" = 11 ] && sleep 0.2 && exit 75; sleep 0.6',
)
RULES = [
    {"name": "transient", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}},
    {"name": "bad-config", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [78]}},
]


def test_a_gang_that_succeeds_ends_with_0_and_leaves_no_process(folder: Here) -> None:
    folder.write(manifest(ONCE))
    run = folder.run("--logs")
    assert run.wait() == 0
    assert folder.left() == []
    assert "worker-2 | hello of 2" in run.said
    assert "g has succeeded" in run.said
    assert folder.job.status.phase == "Succeeded"


def test_a_killed_worker_is_started_again_with_all_others_in_the_same_pods(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    before, workers = folder.pods(), folder.workers()
    done = folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    assert done.returncode == 0
    assert f"process {workers['worker-1'].pid} was sent SIGKILL" in done.stdout
    folder.runs_attempt(2)
    after = folder.pods()
    assert {name: (pod.uid, pod.sidecar, pod.supervisor) for name, pod in after.items()} == {
        name: (pod.uid, pod.sidecar, pod.supervisor) for name, pod in before.items()
    }
    assert not set(folder.workers().values()) & set(workers.values())
    until(lambda: "attempt 2 runs again" in run.said, "the recovery is said with its phases")
    assert "incident to attempt 2: worker-1 (rank 1): ended by SIGKILL [Process, charged]" in run.said


def test_the_json_object_has_the_final_status_and_every_members_processes(folder: Here) -> None:
    folder.write(manifest(FAILS_ONCE, podFailurePolicy={"rules": RULES}))
    run = folder.run("-o", "json")
    pods = until(lambda: len(folder.attempts()) == 3 and folder.pods(), "every worker runs")
    assert isinstance(pods, dict)
    assert run.wait() == 0
    found = last_json(run)
    status = found["status"]
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2)
    assert status["restarts"] == {"counted": 0, "uncounted": 1, "inWindow": 0}
    cause = status["incidents"][0]["cause"]
    assert (cause["member"], cause["reason"], cause["exitCode"], cause["rule"]) == (
        "worker-1",
        "ExitCode",
        75,
        "transient",
    )
    assert [member["member"] for member in found["members"]] == ["worker-0", "worker-1", "worker-2"]
    for member in found["members"]:
        pod = pods[member["member"]]
        assert pod.sidecar is not None
        assert pod.supervisor is not None
        assert member["pod"] == pod.name
        assert member["incarnation"] == 0
        assert member["sidecar"] == {"pid": pod.sidecar.pid, "startTime": pod.sidecar.start_time}
        assert member["supervisor"] == {"pid": pod.supervisor.pid, "startTime": pod.supervisor.start_time}
    assert "rule transient, not charged" in run.err.read_text()


def test_a_rule_that_fails_the_job_ends_with_1_and_says_which_rule(folder: Here) -> None:
    folder.write(manifest(("sh", "-c", "exit 78"), podFailurePolicy={"rules": RULES}))
    run = folder.run()
    assert run.wait() == 1
    assert "g has failed" in run.said
    assert "rule bad-config says FailJob" in run.said
    assert folder.left() == []


def test_a_command_that_cannot_be_executed_fails_when_the_budget_is_used_up(folder: Here) -> None:
    recovery = {"budget": {"type": "Windowed", "maxRestarts": 2}, "replaceAfter": 100}
    folder.write(manifest(("/no/such/trainer",), 2, recovery=recovery))
    run = folder.run("-o", "json")
    assert run.wait() == 1
    status = last_json(run)["status"]
    assert status["restarts"]["counted"] == 2
    assert status["incidents"][0]["cause"]["reason"] == "StartFailed"
    assert "/no/such/trainer" in status["message"]
    assert "the budget is used up: 2 restarts" in status["message"]
    assert folder.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_run_says_what_it_does_and_leaves_no_process(folder: Here, number: int) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    run.signal(number)
    assert run.wait() == 130
    assert folder.left() == []
    assert "ending every process of g" in run.said
    assert "no process of g is left" in run.said
    assert folder.gangctl("status", "g").returncode == 2


def test_a_second_ctrl_c_does_not_wait_for_the_grace(folder: Here) -> None:
    stubborn = (
        "sh",
        "-c",
        'trap "" TERM; echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; while :; do sleep 0.05; done',
    )
    folder.write(manifest(stubborn, recovery={"stopGracePeriodSeconds": 600}))
    run = folder.run()
    folder.runs_attempt(1)
    run.signal(signal.SIGINT)
    until(lambda: "ending every process" in run.said, "the first Ctrl-C was heard")
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert "killing what is left" in run.said
    assert folder.left() == []


def test_a_reader_of_the_pipe_who_goes_away_ends_the_gang(folder: Here) -> None:
    folder.write(manifest())
    command = [sys.executable, "-m", "gangctl", "run", "job.yaml"]
    with subprocess.Popen(command, cwd=folder.path, env=folder.env(), stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        folder.runs_attempt(1)
        run.stdout.close()
        folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
        assert run.wait(30) == 130
    assert folder.left() == []


def test_a_killed_controller_is_started_again_while_workers_train_on(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    workers, old = folder.workers(), controller_pid(folder.state)
    assert folder.gangctl("inject", "g", "--kill-controller").returncode == 0
    until(lambda: _controller(folder) not in {None, old}, "another controller runs")
    assert "the controller died by SIGKILL; workers continue to train" in run.said
    folder.gangctl("inject", "g", "worker-0", "--exit-code", "9")
    folder.runs_attempt(2)
    assert set(folder.attempts()["worker-1"]) == {1, 2}
    assert not set(folder.workers().values()) & set(workers.values())
    assert folder.job.status.restarts.counted == 1


def test_a_killed_gangctl_is_followed_by_one_that_takes_over_and_touches_no_worker(folder: Here) -> None:
    folder.write(manifest())
    first = folder.run()
    folder.runs_attempt(1)
    workers, uid = folder.workers(), folder.job.metadata.uid
    first.signal(signal.SIGKILL)
    first.wait()
    second = folder.run()
    until(folder.is_seen_running, "the second one sees them run")
    assert "it is taken over, its workers are not touched" in second.said
    assert folder.workers() == workers
    assert folder.job.metadata.uid == uid
    assert folder.attempts() == {name: [1] for name in workers}
    second.signal(signal.SIGINT)
    assert second.wait() == 130
    assert folder.left() == []


def test_with_keep_an_interrupted_run_leaves_the_workers_running(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run("--keep")
    folder.runs_attempt(1)
    workers = folder.workers()
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert all(process.is_alive(worker) for worker in workers.values())
    assert _controller(folder) is None


def test_policy_of_a_gang_that_runs_is_changed_and_its_roles_are_not(folder: Here) -> None:
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
    until(lambda: "taken over with the manifest's changes" in second.said, "it is changed")
    assert folder.job.metadata.generation == 2
    folder.gangctl("inject", "g", "worker-1", "--exit-code", "78")
    assert second.wait() == 1
    assert "rule bad-config says FailJob" in second.said


def test_a_suspended_gang_has_no_processes_and_resumes_in_a_new_attempt(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    suspended = folder.gangctl("suspend", "g", "--wait", "20")
    assert suspended.returncode == 0
    until(lambda: not folder.workers(), "no worker is left")
    resumed = folder.gangctl("resume", "g", "--wait", "20")
    assert resumed.returncode == 0
    assert "Running, attempt 2" in resumed.stdout
    folder.runs_attempt(2)
    restarted = folder.gangctl("restart", "g", "--wait", "20")
    assert "Running, attempt 3" in restarted.stdout
    folder.runs_attempt(3)
    assert folder.job.status.restarts.counted == 0
    assert folder.gangctl("suspend", "g", "--wait", "20").returncode == 0
    run.signal(signal.SIGINT)
    assert run.wait() == 3
    assert folder.left() == []
    assert "the gang stays suspended" in run.said
    again = folder.run()
    until(lambda: "g: Suspended, attempt 3" in again.said, "it is still suspended")
    assert folder.gangctl("resume", "g", "--wait", "20").returncode == 0
    folder.runs_attempt(4)


def test_a_gang_whose_budget_is_used_up_is_held_and_a_restart_goes_on(folder: Here) -> None:
    recovery = {"budget": {"type": "Windowed", "maxRestarts": 0}, "onExhausted": "Hold"}
    folder.write(manifest(recovery=recovery))
    run = folder.run()
    folder.runs_attempt(1)
    folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    until(lambda: folder.job.status.phase == "Held", "it is held")
    assert "gangctl restart g continues" in folder.gangctl("status", "g").stdout
    folder.gangctl("restart", "g")
    until(lambda: folder.job.status.phase == "Running", "it runs again")
    folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    until(lambda: folder.job.status.phase == "Held", "it is held again")
    run.signal(signal.SIGTERM)
    assert run.wait() == 3
    assert folder.left() == []


def test_steps_are_seen_while_no_status_is_written(folder: Here) -> None:
    script = """
import time, gangclient
gang = gangclient.connect()
step = 0
while True:
    step += 1
    gang.progress(step)
    time.sleep(0.05)
"""
    folder.write(manifest((sys.executable, "-c", script), 2))
    folder.run()

    def steps() -> int:
        words = folder.gangctl("status").stdout.split()
        return int(words[-2]) if len(words) > 7 and words[-2].isdigit() else 0

    first = until(steps, "a step is shown")
    version = folder.job.metadata.resource_version
    until(lambda: steps() > first, "a later step is shown")
    assert folder.job.metadata.resource_version == version


def test_a_gang_that_has_ended_is_replaced_by_a_new_one(folder: Here) -> None:
    folder.write(manifest(ONCE, 1))
    assert folder.run().wait() == 0
    uid = folder.job.metadata.uid
    second = folder.run()
    assert second.wait() == 0
    assert folder.job.metadata.uid != uid
    assert folder.job.status.attempt == 1
    assert "is created; it replaces the one that has succeeded" in second.said


@pytest.mark.parametrize(
    ("change", "path", "found", "allowed"),
    [
        ("replicas: 3", "spec.roles[0].replicas", "0", "from 1 to 10000"),
        ("kind: GangJob", "kind", "GangJop", "GangJob"),
    ],
)
def test_a_wrong_manifest_says_where_and_what_and_starts_nothing(
    folder: Here, change: str, path: str, found: str, allowed: str
) -> None:
    folder.write(manifest())
    text = (folder.path / "job.yaml").read_text()
    folder.write(text.replace(change, f"{change.split(':', maxsplit=1)[0]}: {found}"))
    run = folder.run()
    assert run.wait() == 2
    assert path in run.said
    assert found in run.said
    assert allowed in run.said
    assert not folder.state.path.exists()
    assert folder.left() == []


def test_what_cannot_be_run_on_this_machine_is_refused(folder: Here) -> None:
    one = manifest()
    one["spec"]["roles"][0]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "x"}}]
    folder.write(one)
    run = folder.run()
    assert run.wait() == 2
    assert "spec.roles[0].template.spec.containers[0].envFrom" in run.said
    assert not folder.state.gangs.exists()


@pytest.mark.parametrize("content", ["", "{", "a: [", "\x00", "just text"])
def test_what_is_no_manifest_at_all_is_said_in_a_few_lines(folder: Here, content: str) -> None:
    folder.write(content)
    run = folder.run()
    assert run.wait() == 2
    assert run.said.startswith("error: ")
    assert "Traceback" not in run.said


def test_a_state_directory_that_cannot_be_written_is_said(folder: Here) -> None:
    folder.write(manifest())
    blocked = folder.path / "file"
    blocked.write_text("")
    run = folder.run("--state-dir", str(blocked / "state"))
    assert run.wait() == 2
    assert str(blocked) in run.said
    assert "--state-dir" in run.said
    assert folder.left() == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_state_directory_is_said(folder: Here) -> None:
    folder.write(manifest())
    folder.state.path.mkdir()
    folder.state.path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    run = folder.run()
    assert run.wait() == 2
    assert "can't be written" in run.said


def test_a_second_run_in_the_same_state_directory_is_refused(folder: Here) -> None:
    folder.write(manifest(LOOP, 1))
    first = folder.run()
    folder.runs_attempt(1, 1)
    second = folder.run()
    assert second.wait() == 2
    assert f"another gangctl run (process {first.child.pid})" in second.said
    assert len(folder.workers()) == 1


def test_a_worker_that_hangs_goes_on_when_it_is_let_go(folder: Here) -> None:
    folder.write(manifest(LOOP, 2))
    folder.run()
    folder.runs_attempt(1, 2)
    worker = folder.workers()["worker-1"]
    assert folder.gangctl("inject", "g", "worker-1", "--hang").returncode == 0
    until(lambda: _state_of(worker.pid) == "T", "it is stopped")
    assert folder.gangctl("inject", "g", "worker-1", "--unhang").returncode == 0
    until(lambda: _state_of(worker.pid) != "T", "it goes on")
    assert folder.workers()["worker-1"] == worker


def _controller(folder: Here) -> int | None:
    try:
        pid = controller_pid(folder.state)
    except Exception:  # noqa: BLE001 - whatever is wrong, none runs as far as can be told
        return None
    return pid if process.process_of(pid) else None


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
