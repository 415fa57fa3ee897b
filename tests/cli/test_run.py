"""`gangctl run` end to end: real controllers, sidecars, supervisors and workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.cli.here import LOOP, Here, last_json, manifest
from tests.wait import until

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


def test_a_successful_gang_ends_with_0_and_leaves_no_process(folder: Here) -> None:
    folder.write(manifest(ONCE))
    run = folder.run("--logs")
    assert run.wait() == 0
    assert folder.left() == []
    assert "worker-2 | hello of 2" in run.said
    assert "g has succeeded" in run.said
    assert folder.job.status.phase == "Succeeded"


def test_a_killed_worker_restarts_with_all_others_in_the_same_pods(folder: Here) -> None:
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
    until("the recovery is said with its phases", lambda: "attempt 2 runs again" in run.said)
    assert "incident to attempt 2: worker-1 (rank 1): ended by SIGKILL [Process, charged]" in run.said


def test_the_json_object_has_the_final_status_and_the_processes_of_each_member(folder: Here) -> None:
    folder.write(manifest(FAILS_ONCE, podFailurePolicy={"rules": RULES}))
    run = folder.run("-o", "json")
    pods = until("every worker runs", lambda: len(folder.attempts()) == 3 and folder.pods())
    assert isinstance(pods, dict)
    assert run.wait() == 0
    found = last_json(run)
    status = found["status"]
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2)
    assert status["restarts"] == {"counted": 0, "uncounted": 1, "inWindow": 0, "withoutStep": 1}
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


def test_a_rule_that_fails_the_job_ends_with_1_and_the_output_names_the_rule(folder: Here) -> None:
    folder.write(manifest(("sh", "-c", "exit 78"), podFailurePolicy={"rules": RULES}))
    run = folder.run()
    assert run.wait() == 1
    assert "g has failed" in run.said
    assert "rule bad-config has action FailJob" in run.said
    assert folder.left() == []


def test_an_end_after_a_restarted_container_is_judged_by_itself(folder: Here) -> None:
    """The restart of the container is settled: a rule for the exit code that follows decides alone."""
    folder.write(manifest(podFailurePolicy={"rules": RULES}))
    run = folder.run()
    folder.runs_attempt(1)
    assert folder.gangctl("inject", "g", "worker-1", "--kill-supervisor").returncode == 0
    folder.runs_attempt(2)
    assert folder.job.status.incidents[0].cause.reason == "ContainerRestarted"
    injected = folder.gangctl("inject", "g", "worker-1", "--exit-code", "78")
    if "ptrace_scope" in injected.stderr:
        pytest.skip("ptrace is not permitted here")
    assert run.wait() == 1
    assert "rule bad-config has action FailJob" in run.said
    assert {member: attempts[-1] for member, attempts in folder.attempts().items()} == {
        f"worker-{at}": 2 for at in range(3)
    }


@pytest.mark.parametrize("start", ["Fork", pytest.param("Exec", marks=pytest.mark.nightly)])
def test_a_worker_gets_the_python_of_the_shell_and_not_that_of_gangctl(folder: Here, start: str) -> None:
    theirs = folder.path / "theirs"
    venv.create(theirs, symlinks=True)
    script = "import os, sys; open(os.environ['GANG_MEMBER'] + '.prefix', 'w').write(sys.prefix)"
    one = manifest(("python", "-c", script), 1)
    one["spec"]["roles"][0]["start"] = {"type": start}
    folder.write(one)
    assert folder.run(PATH=f"{theirs / 'bin'}:{os.environ['PATH']}").wait() == 0
    assert (folder.path / "worker-0.prefix").read_text() == str(theirs) != sys.prefix


def test_a_command_that_does_not_exist_fails_the_gang_after_three_tries(folder: Here) -> None:
    recovery = {"budget": {"type": "Windowed", "maxRestarts": 9}, "replaceAfter": 100}
    folder.write(manifest(("/no/such/trainer",), 2, recovery=recovery))
    run = folder.run("-o", "json")
    assert run.wait() == 1
    status = last_json(run)["status"]
    assert status["restarts"]["counted"] == 2
    assert status["incidents"][0]["cause"]["reason"] == "StartFailed"
    assert "/no/such/trainer" in status["message"]
    assert "3 starts in a row failed like this" in status["message"]
    assert folder.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.nightly)])
def test_an_interrupted_run_prints_what_it_does_and_leaves_no_process(folder: Here, number: int) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    run.signal(number)
    assert run.wait() == 130
    assert folder.left() == []
    assert "ending every process of g" in run.said
    assert "no process of g is left" in run.said
    assert "Stopped" in folder.gangctl("status", "g").stdout


def test_a_second_ctrl_c_does_not_wait_for_the_grace_period(folder: Here) -> None:
    stubborn = (
        "sh",
        "-c",
        'trap "" TERM; echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; exec sleep 1000000',
    )
    folder.write(manifest(stubborn, recovery={"stopGracePeriodSeconds": 600}))
    run = folder.run()
    folder.runs_attempt(1)
    run.signal(signal.SIGINT)
    until("the first Ctrl-C was heard", lambda: "ending every process" in run.said)
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert "killing what is left" in run.said
    assert folder.left() == []


def test_closing_the_pipe_ends_the_gang(folder: Here) -> None:
    folder.write(manifest())
    command = [sys.executable, "-m", "gangctl", "run", "job.yaml"]
    with subprocess.Popen(command, cwd=folder.path, env=folder.env(), stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        folder.runs_attempt(1)
        run.stdout.close()
        folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
        assert run.wait(30) == 130
    assert folder.left() == []


@pytest.mark.nightly
def test_a_suspended_gang_has_no_processes_and_resumes_in_a_new_attempt(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    suspended = folder.gangctl("suspend", "g", "--wait", "20")
    assert suspended.returncode == 0
    assert len(folder.left()) == 2, "gangctl run and its controller are left"
    refused = folder.gangctl("inject", "g", "worker-1", "--signal", "KILL").stderr
    assert "no pod of member worker-1 runs; members with running pods: none; the gang is Suspended" in refused
    assert "resume g starts it again" in refused
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
    until("it is still suspended", lambda: "g: Suspended, attempt 3" in again.said)
    assert folder.gangctl("resume", "g", "--wait", "20").returncode == 0
    folder.runs_attempt(4)


def test_a_gang_with_an_exhausted_budget_is_held_and_a_restart_releases_it(folder: Here) -> None:
    recovery = {"budget": {"type": "Windowed", "maxRestarts": 0}, "onExhausted": "Hold"}
    folder.write(manifest(recovery=recovery))
    run = folder.run()
    folder.runs_attempt(1)
    folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    until("it is held", lambda: folder.job.status.phase == "Held")
    assert "gangctl restart g goes on" in folder.gangctl("status", "g").stdout
    folder.gangctl("restart", "g")
    until("it runs again", lambda: folder.job.status.phase == "Running")
    folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    until("it is held again", lambda: folder.job.status.phase == "Held")
    run.signal(signal.SIGTERM)
    assert run.wait() == 3
    assert folder.left() == []


def test_status_shows_steps_while_no_status_is_written(folder: Here) -> None:
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

    def are_shown_without_a_write() -> bool:
        """The first steps, and the summary now and then, are written: then the next two looks tell."""
        version, first = folder.job.metadata.resource_version, steps()
        until("a later step is shown", lambda: steps() > first)
        return folder.job.metadata.resource_version == version

    until("a step is shown", steps)
    until("later steps are shown while nothing is written", are_shown_without_a_write)


def test_a_frozen_worker_continues_after_unhang(folder: Here) -> None:
    folder.write(manifest(LOOP, 2))
    folder.run()
    folder.runs_attempt(1, 2)
    worker = folder.workers()["worker-1"]
    assert folder.gangctl("inject", "g", "worker-1", "--hang").returncode == 0
    until("it is stopped", lambda: _state_of(worker.pid) == "T")
    assert folder.gangctl("inject", "g", "worker-1", "--unhang").returncode == 0
    until("it goes on", lambda: _state_of(worker.pid) != "T")
    assert folder.workers()["worker-1"] == worker


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_local_mode_ignores_is_noted_once_on_standard_error(folder: Here) -> None:
    one = manifest(ONCE, 1)
    container = one["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"memory": "1Gi", "nvidia.com/gpu": 8}}
    folder.write(one)
    run = folder.run("--set", "spec.roles[0].replicas=2")
    assert run.wait() == 0
    assert run.err.read_text().count("note: ") == 1
    assert "the resources memory, nvidia.com/gpu have no effect in local mode" in run.err.read_text()
    assert "note: " not in run.out.read_text()
    assert sorted(folder.attempts()) == ["worker-0", "worker-1"]


def test_a_run_whose_state_directory_is_removed_ends_every_process(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    while folder.state.path.exists():
        shutil.rmtree(folder.state.path, ignore_errors=True)
    assert run.wait() == 1
    assert "g was deleted" in run.said
    assert "controller.lock can't be written: No such file or directory" in run.said
    assert folder.left() == []


def test_the_output_of_workers_that_print_faster_than_it_is_shown_is_complete(folder: Here) -> None:
    folder.write(manifest((sys.executable, "-c", "print(*range(60_000), sep='\\n', end='')"), 1))
    run = folder.run("--logs")
    assert run.wait() == 0
    shown = [line.rpartition(" | ")[2] for line in run.out.read_text().splitlines() if "worker-0 | " in line]
    assert shown == list(map(str, range(60_000)))
