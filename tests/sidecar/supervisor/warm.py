"""A member whose workers may be forked from a template."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gangsidecar.supervisor import processes
from gangsidecar.wire import Progress, Report, WarmStart
from tests.sidecar.supervisor.supervised import Member, is_alive, wait_for

WAITS = "import time; time.sleep(1000)\n"
"""The end of a script that trains."""


class Warm:
    """A supervisor, a script of the user's, and a folder for installed packages of the test's."""

    def __init__(self, member: Member, folder: Path) -> None:
        self.member = member
        self.script = folder / "code" / "train.py"
        self.script.parent.mkdir()
        self.installed = folder / "site-packages"
        self.installed.mkdir()
        self.attempt = 0

    def start(self, *command: str, preload: str = "Auto", caches: str = "nothing") -> None:
        self.member.start(*command, preload=preload, caches=caches)

    def install(self, name: str, text: str) -> Path:
        """Install a module; ``PYTHONPATH`` must have the folder."""
        path = self.installed / f"{name}.py"
        path.write_text(text)
        return path

    def run(self, **env: str) -> int:
        """Start the next attempt with one process; returns its pid."""
        self.order(env)
        return self.worker()

    def order(self, *envs: dict[str, str]) -> Report:
        """Start the next attempt with these processes."""
        self.attempt += 1
        ready = self.member.hold(self.attempt)
        given = [
            {"GANG_ATTEMPT": str(self.attempt), "RANK": str(rank), **env} for rank, env in enumerate(envs or ({},))
        ]
        told = self.member.run(ready, *given)
        assert told.warm_start is not None
        assert told.warm_start.attempt == self.attempt
        return told

    @property
    def told(self) -> WarmStart:
        """What the newest report says of the start."""
        assert self.member.sidecar.last is not None
        assert self.member.sidecar.last.warm_start is not None
        return self.member.sidecar.last.warm_start

    def worker(self) -> int:
        """The pid of the worker: every process here but the template is one."""
        found = wait_for(lambda: [pid for pid in processes.children(self.member.pid) if pid != self.template])
        return int(found[0])

    @property
    def template(self) -> int:
        """The newest template's pid; 0 if there is none."""
        found = re.findall(r"the template is ready pid=(\d+)", self.member.log)
        return int(found[-1]) if found else 0

    def ready(self) -> int:
        """Wait for the template; returns its pid."""
        return int(wait_for(lambda: self.template))

    def steps(self) -> int:
        """The worker reports its first step, and a template is made; returns its pid."""
        self.member.sidecar.send(Progress(self.attempt, 1, 0))
        return self.ready()

    def report(self, attempt: int = 0) -> Any:
        """What the script has written to ``report-ATTEMPT``."""
        path = self.member.folder / f"report-{attempt or self.attempt}"
        return wait_for(lambda: json.loads(path.read_text() or "null") if path.exists() else None)


def reporting(code: str, expression: str) -> str:
    """A script that runs the code, and then reports the value of the expression."""
    return (
        f"{code}\nimport json, os\n"
        'with open(os.environ["DIR"] + "/report-" + os.environ["GANG_ATTEMPT"] + ".tmp", "w") as file:\n'
        f"    json.dump({expression}, file)\n"
        'os.rename(file.name, file.name[:-len(".tmp")])\n'
        f"{WAITS}"
    )


SAYS_HELLO = reporting("import sys", '["hello", "decimal" in sys.modules]')


def executed(warm: Warm, *, attempts: int = 1) -> str:
    """Run attempts, which are executed; returns why."""
    for _ in range(attempts):
        warm.run()
        assert warm.report()[0] == "hello"
        assert (warm.told.forked, warm.told.executed) == (0, 1)
    return warm.told.obstacle


def template_ends(warm: Warm) -> None:
    wait_for(lambda: "the template ends" in warm.member.log)


def is_gone(pid: int) -> bool:
    return not is_alive(pid)
