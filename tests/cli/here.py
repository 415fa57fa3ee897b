"""A folder of one test with gangs run by the real command line; nothing that was started there outlives the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from gangctl.api.gangjob import GangJob
from gangctl.cli.gang_view import live_snapshot
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import LocalProcess
from tests import commands
from tests.wait import SECONDS, until

T = TypeVar("T")
LOOP = ("sh", "-c", 'echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; exec sleep 1000000')
"""A worker that writes its attempt into a file of its member's and never ends."""


def _heed_hangups() -> None:
    """Restore SIGHUP, which is ignored if the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def manifest(command: Sequence[str] = LOOP, replicas: int = 3, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "command": list(command)}
    role = {"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [container]}}}
    recovery = {"stopGracePeriodSeconds": 2, "plannedStopGracePeriodSeconds": 2, "evidenceWindowSeconds": 0}
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "g"},
        "spec": {"roles": [role], "recovery": {**recovery, **spec.pop("recovery", {})}, **spec},
    }


@dataclass
class Running:
    """A `gangctl run` that was started."""

    child: subprocess.Popen[bytes]
    out: Path
    err: Path

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        return self.child.wait(SECONDS)

    @property
    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()


@dataclass
class Here:
    """The folder."""

    path: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _runs: list[Running] = field(default_factory=list)

    @property
    def state(self) -> StateDirectory:
        return StateDirectory(self.path / ".gangctl")

    @property
    def job(self) -> GangJob:
        return GangStore(self.state.gang("g")).read()

    def write(self, content: dict[str, Any] | str, name: str = "job.yaml") -> Path:
        path = self.path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    def run(self, *arguments: str, **environment: str) -> Running:
        """Start `gangctl run job.yaml` in the background."""
        number = len(self._runs)
        out, err = self.path / f"out{number}", self.path / f"err{number}"
        with out.open("wb") as first, err.open("wb") as second:
            command = [sys.executable, "-m", "gangctl", "run", "job.yaml", *arguments]
            child = subprocess.Popen(
                command,
                cwd=self.path,
                env=self.env(**environment),
                stdout=first,
                stderr=second,
                preexec_fn=_heed_hangups,  # noqa: PLW1509 - no threads here
            )
        started = Running(child, out, err)
        self._runs.append(started)
        return started

    def gangctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another verb to its end."""
        return commands.gangctl(arguments, self.path, self.env())

    def env(self, **more: str) -> dict[str, str]:
        return {**os.environ, "TEST_MARK": self.mark, **more}

    def pods(self, gang: str = "g") -> dict[str, PodRecord]:
        """By member, the newest."""
        found = sorted(pod_record.load_all(self.state.gang(gang)), key=lambda pod: pod.incarnation)
        return {pod.member: pod for pod in found}

    def workers(self, gang: str = "g") -> dict[str, LocalProcess]:
        """The worker's first process, by member."""
        return {
            name: children[0]
            for name, pod in self.pods(gang).items()
            if pod.supervisor is not None and (children := process.children(pod.supervisor))
        }

    def attempts(self) -> dict[str, list[int]]:
        """Which attempts each member's worker has been in."""
        return {
            path.stem: [int(line) for line in path.read_text().split()] for path in self.path.glob("worker-*.attempts")
        }

    def runs_attempt(self, attempt: int, members: int = 3) -> None:
        """Wait until every worker is in this attempt."""
        until(
            f"attempt {attempt} runs; {self.attempts()}",
            lambda: (
                [seen[-1:] for seen in self.attempts().values()] == [[attempt]] * members
                and len(self.workers()) == members
            ),
        )

    def is_seen_running(self) -> bool:
        """Whether a controller is there that hears of every member that it runs."""
        told = live_snapshot(self.state, "g")
        return told is not None and all(one.connected and one.phase == "Running" for one in told.members)

    def left(self) -> list[int]:
        """Processes that were started by anything here."""
        mark = f"TEST_MARK={self.mark}".encode()
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                with suppress(OSError):
                    if mark in (path / "environ").read_bytes().split(b"\0"):
                        found.append(int(path.name))
        return found

    def controllers(self) -> list[int]:
        """Those of the processes that are left which are controllers."""
        found = []
        for pid in self.left():
            with suppress(OSError):
                if b"gangctl.controller" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def clean(self) -> None:
        for run in self._runs:
            if run.child.poll() is None:
                run.child.kill()
                run.child.wait()
        while left := self.left():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


@contextmanager
def here(path: Path) -> Iterator[Here]:
    one = Here(path)
    try:
        yield one
    finally:
        one.clean()


def last_json(run: Running) -> dict[str, Any]:
    """The one JSON object on stdout, and nothing but it."""
    found: dict[str, Any] = json.loads(run.out.read_text())
    return found
