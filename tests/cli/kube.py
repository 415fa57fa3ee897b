"""The command line against a fake API server: for errors, refusals and broken connections only.

What it does with a real one is tested in e2e/test_cli.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests import commands
from tests.cluster.kube.fakeapi import FakeApi, serving

EXIT_3 = {
    "status": "Failure",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    "message": "exit code 3",
}


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """A folder with a kubeconfig."""

    api: FakeApi
    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config"

    def configure(self, server: str) -> None:
        context = {"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "research"}}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [context],
            "current-context": "lab",
        }
        self.config.write_text(json.dumps(content))

    async def gangctl(self, *arguments: str, plugin: bool = False, **environment: str) -> Done:
        env = {key: value for key, value in os.environ.items() if key != "GANGCTL_STATE_DIR"}
        env |= {"HOME": str(self.path), "KUBECONFIG": str(self.config), **environment}
        name = "/usr/bin/kubectl-gang" if plugin else "gangctl"
        done = await asyncio.to_thread(commands.gangctl, arguments, self.path, env, name)
        return Done(done.returncode, done.stdout, done.stderr)


@asynccontextmanager
async def shell(path: Path) -> AsyncIterator[Shell]:
    async with serving() as (api, _):
        one = Shell(api, path)
        one.configure(api.url)
        yield one


def job(name: str = "demo", **status: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "command": ["true"]}
    role = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name, "namespace": "research", "uid": f"uid-{name}", "generation": 1},
        "spec": {"roles": [role]},
        "status": {"phase": "Running", "attempt": 1, **status},
    }


def pod(member: str, gang: str = "demo", phase: str = "Running") -> dict[str, Any]:
    role, index = member.split("-")
    labels = {"gang": gang, "uid": f"uid-{gang}", "role": role, "index": index, "incarnation": "0"}
    running = {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-31T12:00:00Z"}}}
    return {
        "metadata": {
            "name": f"{gang}-{member}-0",
            "namespace": "research",
            "uid": f"pod-{member}",
            "labels": {f"gangctl.io/{key}": value for key, value in labels.items()},
        },
        "spec": {"nodeName": f"node-{index}", "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": [running]},
    }


async def with_gang(one: Shell, **status: Any) -> None:
    """A gang of two with its pods."""
    await one.api.put("gangjobs", job(**status))
    for member in ("worker-0", "worker-1"):
        await one.api.put("pods", pod(member))


def on(ending: str, answer: Callable[[web.Request], Any], method: str = "GET") -> Callable[[web.Request], Any]:
    """A fault for requests of this method whose path ends so."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if request.method != method or not request.path.endswith(ending):
            return None
        found: web.StreamResponse | None = await answer(request)
        return found

    return fault
