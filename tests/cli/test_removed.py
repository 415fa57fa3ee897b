"""After Ctrl-C of `gangctl run`: what it shows last, and the logs of a gang that is removed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from gangctl.api.model import rfc3339
from gangctl.cli.gang_view import live_snapshot
from gangctl.cli.main import main
from gangctl.cluster.local.layout import StateDirectory
from tests.cli.here import Here, manifest
from tests.cli.tracecases import BEGAN
from tests.explain.timelinecases import fault, gang
from tests.wait import until

SPEAKS = ("sh", "-c", 'echo "one of $RANK"; echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; exec sleep 600')


def interrupted(folder: Here, word: str = "one") -> None:
    """A gang of two that was ended by Ctrl-C, after each worker has printed a line with this word."""
    folder.write(manifest((*SPEAKS[:2], SPEAKS[2].replace("one", word)), 2))
    run = folder.run("--logs")
    until("both have spoken", lambda: all(f"{word} of {rank}\n" in run.said for rank in (0, 1)))
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert "gangctl logs g has its logs" in run.said


@pytest.mark.nightly
def test_the_logs_of_a_removed_gang_are_read_and_a_new_gang_begins_with_empty_ones(folder: Here) -> None:
    interrupted(folder)
    assert folder.gangctl("logs", "g").stdout == "worker-0 | one of 0\nworker-1 | one of 1\n"
    assert folder.gangctl("logs", "g", "--rank", "1").stdout == "one of 1\n"
    gone = folder.gangctl("restart", "g")
    assert gone.returncode == 2
    assert "was removed: gangctl logs g, why, trace and timeline still tell of it" in gone.stderr
    assert "it has no gangs" not in folder.gangctl("restart", "h").stderr

    interrupted(folder, "two")
    assert folder.gangctl("logs", "g", "worker-1").stdout == "two of 1\n"
    assert folder.gangctl("logs", "g", "worker-1", "--previous").stdout == "one of 1\n"
    interrupted(folder, "three")
    assert folder.gangctl("logs", "g", "worker-1", "--previous").stdout == "two of 1\n"
    assert not folder.state.gang("g").events.read_text().count("two")


@pytest.mark.parametrize("name", [(), pytest.param(("g",), marks=pytest.mark.nightly)])
def test_what_happened_to_an_interrupted_gang_is_told_and_it_runs_again(folder: Here, name: tuple[str, ...]) -> None:
    does = "test -e over && exit 0; test $GANG_ATTEMPT = 2 && echo again && exec sleep 1000; exit 3"
    folder.write(manifest(("sh", "-c", does), 1))
    run = folder.run("--logs", "-o", "json")
    until("it has restarted", lambda: "worker-0 | again" in run.said)
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    shown = json.loads(run.out.read_text())["status"]
    assert (shown["phase"], shown["message"]) == ("Stopped", "Ctrl-C: every process was ended")
    assert "ready" not in shown
    for verb in ("why", "trace", "timeline"):
        told = folder.gangctl(verb, *name)
        assert told.returncode == 0, told.stderr
        assert "exit code 3" in told.stdout
        assert "gang g was interrupted" in told.stderr
    assert folder.gangctl("logs", *name).stdout == "again\n"
    ended = r"ended the run and every process of the gang at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: attempt 2 was Running"
    why = " ".join(folder.gangctl("why", *name).stdout.split())
    assert why.startswith("g: Stopped, attempt 2 How it ended 1. Ctrl-C, or a signal, ")
    answered = json.loads(folder.gangctl("why", "g", "-o", "json").stdout)
    assert answered["phase"] == "Stopped"
    status = folder.gangctl("status", *name)
    assert re.search(r"g +Stopped", status.stdout)
    assert "no controller" not in status.stdout + status.stderr
    stored = json.loads(folder.gangctl("status", "g", "-o", "json").stdout)
    assert stored["status"]["phase"] == "Stopped"
    assert [one["status"] for one in json.loads(folder.gangctl("status", "-o", "json").stdout)["items"]] == [
        stored["status"]
    ]
    for said in (why, folder.gangctl("status", "g").stdout, stored["status"]["message"], answered["message"]):
        assert re.search(ended, said)
        assert "gangctl rerun g runs it again" in said
    (folder.path / "over").write_text("")
    assert folder.gangctl("rerun", "g").returncode == 0


def test_what_is_told_of_an_interrupted_gang_ends_when_it_was_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    true = {"status": "True", "reason": "R", "lastTransitionTime": BEGAN}
    conditions = [{"type": one, **true} for one in ("Accepted", "Ready")]
    left = fault(2, 100, outcome="Open", settled=False, settledTime=None, milliseconds={"detect": 0}, members=[])
    job, folder = gang(left, phase="Gathering", conditions=conditions), StateDirectory(tmp_path).gang("demo")
    folder.path.mkdir(parents=True)
    folder.removed.write_text(job.model_dump_json(by_alias=True, exclude_none=True))
    os.utime(folder.removed, (BEGAN + 130, BEGAN + 130))

    def said(*words: str) -> str:
        assert main([*words, "--state-dir", str(tmp_path)]) == 0
        return " ".join(capsys.readouterr().out.split())

    made = json.loads(said("timeline", "demo", "-o", "json"))
    assert (made["phase"], made["complete"], made["end"]) == ("Stopped", True, rfc3339(BEGAN + 130))
    for form in ((), ("--html", "-"), ("--svg", "-")):
        assert "Stopped, attempt 2, 2 min 10 s, from " in said("timeline", "demo", *form)
    assert "stop has lasted 30.0 s so far" in said("trace", "demo")
    assert "took: 30.0 s so far" in said("why", "demo")
    assert "Accepted True" in said("status", "demo")
    assert "Ready True" not in said("status", "demo")
    stored = json.loads(said("status", "demo", "-o", "json"))["status"]["conditions"]
    assert [one["type"] for one in stored] == ["Accepted"]


@pytest.mark.nightly
def test_without_a_name_the_only_gang_is_meant(folder: Here) -> None:
    assert "there is no gang in" in folder.gangctl("why").stderr
    for name in ("one", "two"):
        folder.write(manifest(("true",), 1))
        assert folder.gangctl("run", "job.yaml", "--set", f"metadata.name={name}").returncode == 0
        told = folder.gangctl("why")
        assert ("name one of the gangs: one, two" in told.stderr) == (name == "two")
        assert (f"{name}: Succeeded" in told.stdout) == (name == "one")


@pytest.mark.nightly
def test_a_followed_log_ends_with_its_gang(folder: Here) -> None:
    interrupted(folder)
    assert folder.gangctl("logs", "g", "worker-1", "-f").stdout == "one of 1\n"
    folder.write(manifest(("sh", "-c", "echo begins; sleep 1; printf ends"), 1))
    run = folder.run("--logs")
    until("it has begun", lambda: "worker-0 | begins" in run.said)
    assert folder.gangctl("logs", "g", "-f").stdout == "begins\nends\n"
    assert run.wait() == 0
    assert folder.gangctl("logs", "g", "-f").stdout == "begins\nends\n"


def test_what_is_left_of_an_interrupted_gang_can_be_deleted(folder: Here) -> None:
    interrupted(folder)
    done = folder.gangctl("delete", "g")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("g is deleted: ")
    assert not folder.state.gang("g").path.exists()


@pytest.mark.nightly
def test_a_gang_that_was_removed_and_is_damaged_is_an_error(folder: Here) -> None:
    interrupted(folder)
    folder.state.gang("g").removed.write_text("{")
    done = folder.gangctl("logs", "g")
    assert done.returncode == 2
    assert "removed.json isn't a stored GangJob" in done.stderr


@pytest.mark.nightly
def test_a_gang_whose_logs_cannot_be_put_aside_is_not_started(folder: Here) -> None:
    interrupted(folder)
    folder.state.gang("g").before.write_text("")
    done = folder.run()
    assert done.wait() == 2
    assert "can't be" in done.said
    assert folder.left() == []


@pytest.fixture
def unled(folder: Here) -> Here:
    """A gang whose `gangctl run` was killed."""
    folder.write(manifest(replicas=2))
    run = folder.run()
    folder.runs_attempt(1, 2)
    run.signal(signal.SIGKILL)
    run.wait()
    until("its controller has noticed", lambda: live_snapshot(folder.state, "g") is None)
    return folder


def test_without_a_controller_status_and_inject_say_so(unled: Here) -> None:
    listed = unled.gangctl("status")
    assert "no controller answers" in listed.stderr
    assert "controller" not in listed.stdout
    assert "no controller answers" in unled.gangctl("status", "g").stdout
    done = unled.gangctl("inject", "g", "worker-0", "--signal", "KILL")
    assert done.returncode == 0
    assert f"no controller runs for {unled.state.path}: the gang reacts with the next gangctl run FILE" in done.stderr


def test_a_script_that_fails_at_once_is_told_with_the_restarts_that_are_left(folder: Here) -> None:
    folder.write(manifest(("sh", "-c", "echo no dataset at /data in $GANG_ATTEMPT >&2; exit 1"), 1))
    run = folder.run()
    # A busy machine shows a later failure first.
    failures = re.compile(r"next: (\d+) attempts in a row failed before a step is known: (.*)")
    told = until("the failures are told", lambda: failures.search(run.said))
    assert "correct what fails (gangctl logs g worker-0 shows why), or end it with gangctl stop g" in told[2]
    assert re.search(
        rf"{int(told[1]) - 1} of 10 restarts (?:is|are) used \(recovery.budget\), then the gang fails", told[2]
    )
    assert 'printed "no dataset at /data in 1"' in run.said
    run.signal(signal.SIGINT)
    assert run.wait() == 130


def test_a_script_that_fails_alike_before_a_step_ends_the_run_with_its_traceback(folder: Here) -> None:
    calls = "".join(f"def call_{number}(): call_{number + 1}()\n" for number in range(12))
    (folder.path / "wrong.py").write_text(f"{calls}def call_12(): open('data')\ncall_0()\n")
    folder.write(manifest((sys.executable, "wrong.py"), 2))
    run = folder.run("--state-dir", "st")
    assert run.wait() == 1
    assert len(re.findall(r"^worker-[01] \|   File .*wrong.py", run.said, re.MULTILINE)) == 14
    assert "No such file or directory: 'data'" in run.said.split("printed last:")[1]
    assert "correct the script, then gangctl rerun --state-dir st g runs it again" in run.said
    end = "3 attempts failed alike before a step was reported"
    assert f"{end}: ending every process of g" in run.said
    assert folder.left() == []
    assert f"{end}, which ended the run" in " ".join(folder.gangctl("why", "g", "--state-dir", "st").stdout.split())
    assert "3 attempts failed alike before a step" in folder.gangctl("why", "g", "--state-dir", "st").stdout
    (folder.path / "data").write_text("")
    assert folder.gangctl("rerun", "g", "--state-dir", "st").returncode == 0


def test_a_run_goes_by_its_budget_where_the_manifest_has_one(folder: Here) -> None:
    budget = {"type": "Windowed", "maxRestarts": 4}
    folder.write(manifest(("sh", "-c", "echo no data >&2; exit 1"), 1, recovery={"budget": budget}))
    run = folder.run()
    assert run.wait() == 1
    assert "attempt 5" in run.said
    assert "alike" not in run.said
