"""Runs an example's workers as gangctl would, and finds their checkpoints as it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import gangclient
from gangsidecar import wire
from gangsidecar.supervisor import lookups
from tests.wait import SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def container(manifest: str) -> dict[str, Any]:
    """The worker's container of a manifest with one role."""
    job = yaml.safe_load((EXAMPLES / manifest).read_text())
    found: dict[str, Any] = job["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    return found


def complete(manifest: str, directory: Path) -> tuple[wire.Found, ...]:
    """The checkpoints that gangctl would find, newest first, by what the manifest says of its first tier."""
    job = yaml.safe_load((EXAMPLES / manifest).read_text())
    source = job["spec"]["checkpoint"]["tiers"][0]["source"]
    found, error = lookups.scan([wire.Tier("shared", str(directory), source["pattern"], source["complete"])])
    assert not error, error
    return found


class Gang:
    """The workers of one manifest, with a directory of their own."""

    def __init__(self, manifest: str, folder: Path, world: int, flags: list[str]) -> None:
        self.manifest = manifest
        self.world = world
        self.directory = folder / "checkpoints"
        self.folder = folder
        self.workers: list[subprocess.Popen[str]] = []
        self.attempt = 0
        self._command = [sys.executable, str(ROOT / container(manifest)["command"][1]), *flags]
        shutil.copytree(Path(gangclient.__file__).parent, folder / "client" / "gangclient")

    def start(self) -> None:
        """Begin the next attempt, at the newest complete checkpoint."""
        self.attempt += 1
        port = lookups.find_free_ports(28_000, 512, str(self.folder), self.attempt)[0]
        env = {
            **os.environ,
            **{entry["name"]: entry["value"] for entry in container(self.manifest)["env"]},
            "CHECKPOINT_DIR": str(self.directory),
            "PYTHONPATH": str(self.folder / "client"),
            "GANG_ATTEMPT": str(self.attempt),
            "WORLD_SIZE": str(self.world),
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        }
        found = complete(self.manifest, self.directory)
        if found:
            env |= {"GANG_RESTORE_STEP": str(found[0].step), "GANG_RESTORE_PATH": found[0].path}
        self.workers = []
        for rank in range(self.world):
            with self.log(rank).open("a") as log:
                self.workers.append(
                    subprocess.Popen(self._command, env={**env, "RANK": str(rank)}, stdout=log, stderr=log, text=True)
                )

    def log(self, rank: int) -> Path:
        """Log of this rank, with all attempts."""
        return self.folder / f"rank-{rank}.log"

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition while the workers run."""

        def holds_while_they_run() -> bool:
            if holds():
                return True
            assert all(worker.poll() is None for worker in self.workers), self.log(0).read_text()
            return False

        until("the workers get there", holds_while_they_run, SECONDS)

    def ends(self) -> list[int]:
        """Wait until all workers have ended; their exit codes, negative for a signal."""
        end = time.monotonic() + SECONDS
        return [worker.wait(max(0.0, end - time.monotonic())) for worker in self.workers]

    def close(self) -> None:
        """Leave no process behind."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
