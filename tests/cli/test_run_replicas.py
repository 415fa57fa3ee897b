"""Gangs of one file run beside each other: a fault restarts one of them, and the others go on."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import yaml

from gangctl.api.gangjob import GangJob
from gangctl.cluster.local import process
from gangctl.cluster.local.gang_store import GangStore
from tests.cli.here import Here, here, manifest
from tests.wait import until

NOTE = 'echo "$REPLICA_GROUP_ID/$NUM_REPLICA_GROUPS $GANG_ATTEMPT" >> "$GANG_NAME"; '
WORKER = NOTE + "until [ -e end ]; do sleep 0.05; done"


def replicas(count: int, **group: object) -> str:
    made = []
    for at in range(count):
        one = manifest(("sh", "-c", WORKER), 1, replicaGroup={"name": "g", "index": at, "count": count, **group})
        made.append(yaml.safe_dump({**one, "metadata": {"name": f"g-{at}"}}))
    return "---\n".join(made)


def read(one: Here, at: int) -> GangJob:
    return GangStore(one.state.gang(f"g-{at}")).read()


def worker(one: Here, at: int) -> process.LocalProcess:
    return until(f"a worker of g-{at}", lambda: one.workers(f"g-{at}").get("worker-0"))


def test_a_replica_that_fails_restarts_alone_and_all_end_together(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        one.write(replicas(2))
        run = one.run("--plain", "--logs", "-o", "json")
        until("both run", lambda: all((tmp_path / f"g-{at}").exists() for at in range(2)))
        process.signal_process(worker(one, 0), signal.SIGKILL)
        until("the restart", lambda: (tmp_path / "g-0").read_text() == "0/2 1\n0/2 2\n")
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.said
        assert (tmp_path / "g-1").read_text() == "1/2 1\n"
        assert [read(one, at).status.attempt for at in range(2)] == [2, 1]
        ended = json.loads(run.out.read_text())
        assert [each["status"]["phase"] for each in ended] == ["Succeeded", "Succeeded"]
        assert "g-0: incident to attempt 2" in run.said
        drawn = one.gangctl("timeline", "--group", "g").stdout
        assert re.search(r"Since the first one ran: at least one replica [\d.]+% of the time, all 2 [\d.]+%", drawn), (
            drawn
        )
        assert re.search(r"^g-0 .*\n^g-1 ", drawn, re.MULTILINE), drawn
        why = one.gangctl("why", "--group", "g").stdout
        assert re.search(r"^g-0: Succeeded.*^g-1: Succeeded", why, re.MULTILINE | re.DOTALL), why
        shown = json.loads(one.gangctl("status", "--group", "g", "-o", "json").stdout)
        assert [each["metadata"]["name"] for each in shown["items"]] == ["g-0", "g-1"]
        listed = one.gangctl("status", "--group", "g")
        assert "g-1" in listed.stdout
        assert "0 of 2 gangs of the replica group g run in" in listed.stderr
        assert "replica group: g; gangctl status --group g" in one.gangctl("status", "g-0").stdout
        assert "there is no replica group 'h'" in one.gangctl("why", "--group", "h").stderr


def test_the_gangs_of_a_group_start_together_and_share_a_budget(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        first, second = replicas(2, minCount=2, budget={"maxRestarts": 1}).split("---\n")
        one.write(first)
        alone = one.run("--plain")
        until("it waits for its group", lambda: "2 gangs of group g have all their pods: 1 gang has" in alone.said)
        assert not (tmp_path / "g-0").exists()
        alone.signal(signal.SIGINT)
        assert alone.wait() == 130
        one.write(f"{first}---\n{second}")
        run = one.run("--plain")
        until("both run", lambda: all((tmp_path / f"g-{at}").exists() for at in range(2)))
        process.signal_process(worker(one, 0), signal.SIGKILL)
        until("the restart", lambda: (tmp_path / "g-0").read_text() == "0/2 1\n0/2 2\n")
        process.signal_process(worker(one, 1), signal.SIGKILL)
        until("the other ends", lambda: read(one, 1).status.phase == "Failed")
        why = " ".join(one.gangctl("why", "g-1").stdout.split())  # Its lines are as wide as a terminal.
        assert "the budget of group g is used up: 1 restart of all its gangs" in why
        assert read(one, 0).status.phase == "Running"
        (tmp_path / "end").touch()
        assert run.wait() == 1


def with_failing(budget: dict[str, int] | None) -> str:
    """A replica group whose second gang fails at once. ``budget``: of its restarts; None for the default."""
    fails = "echo no dataset; exit 3"
    recovery = {} if budget is None else {"budget": budget}
    group = {"name": "g", "index": 1, "count": 2}
    other = {**manifest(("sh", "-c", fails), 1, replicaGroup=group, recovery=recovery), "metadata": {"name": "g-1"}}
    return f"{replicas(2).partition('---')[0]}---\n{yaml.safe_dump(other)}"


def test_a_gang_that_has_failed_is_named_at_once_and_the_others_go_on(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        one.write(with_failing({"maxRestarts": 0}))
        run = one.run("--plain")
        said = "g-1 has failed, and the other gangs go on: gangctl why g-1 shows why"
        until("the failure is said", lambda: said in run.said)
        assert "no dataset" in one.gangctl("why", "g-1").stdout
        assert read(one, 0).status.phase == "Running"
        (tmp_path / "end").touch()
        assert run.wait() == 1
        assert re.search(r"g-0 has succeeded: .*\n.*g-1 has failed: ", run.said), run.said


def test_a_gang_that_fails_alike_is_ended_with_its_last_words_while_the_others_go_on(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        one.write(with_failing(None))
        run = one.run("--plain", "-o", "json")
        until("the failure is said", lambda: "g-1 ends, and the other gangs go on" in run.said)
        assert "g-1/worker-0 | no dataset" in run.said
        until("no process of it is left", lambda: not one.workers("g-1") and not one.pods("g-1"))
        assert read(one, 0).status.phase == "Running"
        (tmp_path / "end").touch()
        assert run.wait() == 1
        assert (tmp_path / "g-0").read_text() == "0/2 1\n"
        assert "g-1 has failed: 3 attempts failed alike before a step was reported" in run.said
        assert "no dataset" in one.gangctl("logs", "g-1").stdout
        _, ended = json.loads(run.out.read_text())
        assert ended["status"]["phase"] == "Stopped"
        assert "failed alike" in ended["status"]["message"]


def test_two_gangs_of_a_file_with_one_name_are_refused(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        one.write(replicas(2).replace("g-1", "g-0"))
        run = one.run()
        assert run.wait() == 2
        assert "another name for each GangJob" in run.said
        assert not one.state.gangs.exists()


def test_an_interrupt_ends_all_gangs(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        one.write(replicas(2))
        run = one.run("--plain")
        until("both run", lambda: all((tmp_path / f"g-{at}").exists() for at in range(2)))
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert all(f"no process of g-{at} is left" in run.said for at in range(2))


def test_an_error_with_one_gang_does_not_leave_the_others_running(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        one.write(replicas(2))
        run = one.run("--plain")
        until("both run", lambda: all((tmp_path / f"g-{at}").exists() for at in range(2)))
        one.state.gang("g-0").job.write_text("{")
        until("it is seen", lambda: "isn't a stored GangJob" in run.said)
        run.signal(signal.SIGINT)
        assert run.wait() == 2
        assert "no process of g-1 is left" in run.said
        assert one.left() == []


def test_if_one_gang_of_a_file_cannot_run_here_none_is_stored(tmp_path: Path) -> None:
    with here(tmp_path) as one:
        first, second = yaml.safe_load_all(replicas(2))
        container = second["spec"]["roles"][0]["template"]["spec"]["containers"][0]
        container["command"], container["workingDir"] = ["true"], "/nowhere"
        one.write(f"{yaml.safe_dump(first)}---\n{yaml.safe_dump(second)}")
        run = one.run("--plain")
        assert run.wait() == 2
        assert "can't be run on this machine" in run.said
        assert not any(one.state.gangs.glob("*/job*")), run.said
