"""A member whose script calls ``gangclient.run``, or speaks on its channel itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gangclient
from gangsidecar.wire import Ping, Report, WarmStart
from tests.sidecar.supervisor.supervised import Member, text, wait_for

CLIENT = str(Path(gangclient.__file__).parent.parent)
HEAD = """\
import os, sys, time, threading, signal, subprocess, atexit
import gangclient
def note(name, what):
    with open(os.environ["DIR"] + "/" + name, "a") as file:
        file.write(str(what) + "\\n")
"""
STEPS = """\
def steps(gang):
    note("begun", f"{gang.number} {os.environ['RANK']} {os.getpid()}")
    step = 0
    while True:
        step += 1
        gang.progress(step)
        time.sleep(0.005)
"""


class Parkable:
    """A member whose script calls ``gangclient.run``."""

    def __init__(self, member: Member, folder: Path) -> None:
        self.member = member
        self.script = folder / "train.py"
        self.attempt = 0

    def start(self, code: str, *command: str, python: str = sys.executable, preload: str = "nothing") -> None:
        self.script.write_text(HEAD + STEPS + code)
        wanted = command or (python, "-u", str(self.script))
        self.member.start(*wanted, client_dir=CLIENT, preload=preload)

    def hold(self, **more: Any) -> Report:
        self.attempt += 1
        return self.member.hold(self.attempt, **more)

    def run(self, *envs: dict[str, str], ready: Report | None = None, **more: Any) -> Report:
        """Run the next attempt, and wait until each of its processes is in ``train``."""
        told = self.hold() if ready is None else ready
        given = [
            {"GANG_ATTEMPT": str(self.attempt), "GANG_SOCKET": "/nowhere", "RANK": str(rank), **env}
            for rank, env in enumerate(envs or ({},))
        ]
        report = self.member.run(told, *given, **more)
        wait_for(lambda: len(self.begun()) == len(given))
        # Before it begins, a process says that it can park. The supervisor has read that when it has a later directive.
        self.member.sidecar.send(self.member.order(told, *given, fencing=self.attempt, **more), Ping())
        self.member.sidecar.until(lambda one: one.fencing == self.attempt)
        return report

    def begun(self, attempt: int = 0) -> dict[int, int]:
        """Rank -> the process that has begun the attempt."""
        lines = [line.split() for line in self.noted("begun")]
        return {int(rank): int(pid) for number, rank, pid in lines if int(number) == (attempt or self.attempt)}

    def noted(self, name: str) -> list[str]:
        return text(self.member.folder / name).splitlines()

    @property
    def told(self) -> WarmStart | None:
        assert self.member.sidecar.last is not None
        return self.member.sidecar.last.warm_start
