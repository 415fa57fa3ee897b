"""Workers of the start type Fork restart as forks of a template, in hardened pods and with several processes a pod."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.cluster.processes import Process
from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS, WORKERS, Gang, training
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
MEMBERS = 2
USER = 1234
HARDENED = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
ROLES: dict[str, dict[str, Any]] = {
    "auto": {"launch": "Command", "start": {"type": "Fork"}},
    "modules": {
        "launch": "PerProcess",
        "processesPerPod": 2,
        "start": {"type": "Fork", "preload": {"type": "Modules", "modules": ["decimal", "json"]}},
    },
}
"""By the names of the gangs. They restart side by side: how workers were started is told with the next summary."""


@dataclass
class Forked:
    """A gang whose workers are forked, and what it was before its restart."""

    gang: Gang
    folder: Path
    ranks: int
    uids: dict[str, str] = field(default_factory=dict)
    starts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    workers: list[Process] = field(default_factory=list)

    def steps(self, attempt: int) -> None:
        """Wait until every rank trains in an attempt, as the user that it should be."""
        notes = [self.folder / f"{attempt}-{rank}" for rank in range(self.ranks)]
        until("every rank trains", lambda: all(note.exists() for note in notes))
        assert [json.loads(note.read_text()) for note in notes] == [{"uid": USER, "found": "0.1"}] * self.ranks

    def is_ready(self) -> bool:
        """Whether every member has a template."""
        return all("the template is ready" in self.gang.log(one) for one in self.uids)

    def running(self) -> list[Process]:
        """The processes of its workers."""
        return [worker for uid in self.uids.values() for worker in process_faults.workers(uid)]


def document(name: str, folder: Path) -> dict[str, Any]:
    """A gang in pods that may do nothing."""
    shutil.copy(WORKERS / "warm.py", folder)
    made = training(name, f"{CHECKPOINTS}/warm.py", replicas=MEMBERS, directory=str(folder), environment={})
    del made["spec"]["checkpoint"]
    made["spec"]["roles"][0] |= ROLES[name]
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0]["securityContext"] = HARDENED
    return made


@pytest.fixture
def forked(submit: Submit, shared_dir: Path) -> list[Forked]:
    """The gangs, with a template in each pod."""
    found = []
    for name, role in ROLES.items():
        folder = shared_dir / name
        folder.mkdir()
        folder.chmod(0o777)
        found.append(Forked(submit(document(name, folder)), folder, MEMBERS * int(role.get("processesPerPod", 1))))
    for one in found:
        one.gang.runs(1)
        one.uids, one.starts = one.gang.uids(), one.gang.container_starts()
        one.steps(1)
        until("every member has a template", one.is_ready, every=0.5)
        one.workers = one.running()
        assert len(one.workers) == one.ranks
    return found


def test_a_killed_rank_restarts_all_ranks_as_forks(forked: list[Forked], cluster: Cluster) -> None:
    def gangctl(verb: str, one: Forked, *words: str) -> str:
        command = [sys.executable, "-m", "gangctl", verb, one.gang.name, *words, "-n", one.gang.namespace]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    for one in forked:
        gangctl("inject", one, "--rank", str(one.ranks - 1), "--signal", "SIGKILL")
    for one in forked:
        one.gang.runs(2)
        one.steps(2)
        now = one.running()
        assert len(now) == one.ranks
        assert not any(process.alive for process in one.workers)
        for uid in one.uids.values():
            children = process_faults.supervisor(uid).children
            assert len([child for child in children if child not in now]) == 1  # the template
        assert (one.gang.uids(), one.gang.container_starts()) == (one.uids, one.starts)
    for one in forked:
        incident = one.gang.until("how they were started", lambda status: told(status["incidents"][0]))
        assert (incident["cause"]["rank"], incident["cause"]["signal"]) == (one.ranks - 1, "SIGKILL")
        assert (incident["warmStart"]["forked"], incident["warmStart"]["executed"]) == (one.ranks, 0)
        assert f"forked from a template: {one.ranks} of {one.ranks}." in gangctl("trace", one)


@pytest.mark.nightly
def test_a_spare_that_is_promoted_starts_its_first_worker_as_a_fork(submit: Submit, shared_dir: Path) -> None:
    made = document("auto", shared_dir)
    made["spec"]["roles"][0]["spares"] = 1
    shared_dir.chmod(0o777)
    one = Forked(submit(made), shared_dir, MEMBERS)
    one.gang.runs(1)
    one.steps(1)
    one.uids = one.gang.uids()
    until("every member and the spare have a template", one.is_ready, every=0.5)
    ranks = one.gang.status.get("ranks", ())  # A spare that was ready earlier may have its place.
    holder = next((rank["member"] for rank in ranks if rank["place"] == "worker-1"), "worker-1")
    one.gang.kubectl("delete", "pod", one.gang.pods()[holder]["metadata"]["name"], "-n", one.gang.namespace)
    one.gang.runs(2)
    one.steps(2)
    incident = one.gang.until("how they were started", lambda status: told(status["incidents"][0]))
    assert (incident["warmStart"]["forked"], incident["warmStart"]["executed"]) == (MEMBERS, 0)


def told(incident: dict[str, Any]) -> dict[str, Any] | None:
    """The incident, if it says how workers were started."""
    return incident if "warmStart" in incident else None
