"""From a fault to the last rank's first training step in local mode: executed, forked, and in the same process.

    python -m bench.warm_start                       4 members, 8 restarts of each kind, JAX
    python -m bench.warm_start --modules torch --python /usr/bin/python3 [--kinds Fork "In process" "Kept state"]
    python -m bench.warm_start --modules torch --freeze [--kinds Exec Fork "Kept state"]

Gangs of real processes under `gangctl run`, one after the other, with the script of bench/first_step.py. Workers are
killed one after the other, each of another member. With Fork, the first kill waits until every member has a template;
what that costs is in the last columns. `first` is from `gangctl run` to the last rank's first step: with `Fork named`,
the modules are in the manifest, so that start is forked as well where the template is ready before the other members
are. With `--freeze`, workers get SIGSTOP instead, and the others wait for them in a collective of gloo; a restart then
has the time until the hang is seen, which is HANG_SECONDS and a moment.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench.steps import TAKEN, WORKER, Steps, Taken, template_bytes, wait_until

NAME = "bench"
NAMED = "Fork named"
"""Fork, and the modules that the script imports are named in the manifest."""
IN_PROCESS = "In process"
"""The script calls gangclient.run, and the rank that was killed is forked."""
KEPT = "Kept state"
"""As well, and survivors go on from the step that they have (PyTorch only)."""
HANG_SECONDS = 5
"""Without a step: the least that can tell a hang from a pause on a busy machine."""
SETTLED_SECONDS = 0.5
"""Pause between two restarts: steps are reported, and what the start has left to do is done."""


def manifest(kind: str, steps: Steps, python: str, modules: list[str], fault: signal.Signals) -> dict[str, Any]:
    """A gang whose start is of this kind, and whose members wait for each other if one is to be stopped."""
    env = [{"name": "JAX_PLATFORMS", "value": "cpu"}, {"name": "USE_LIBUV", "value": "0"}]
    options = {IN_PROCESS: ["--in-process"], KEPT: ["--kept"]}.get(kind, [])
    start: dict[str, Any] = {"type": "Fork" if options else kind.partition(" ")[0]}
    freezes = fault is signal.SIGSTOP
    options += ["--waits"] if freezes else []
    if kind == NAMED:
        start["preload"] = {"type": "Modules", "modules": modules}
    command = steps.command(python, str(steps.folder), modules, options)
    container = {"name": "worker", "command": command, "env": env}
    role = {
        "name": "worker",
        "replicas": steps.ranks,
        "start": start,
        "template": {"spec": {"containers": [container]}},
    }
    spec: dict[str, Any] = {"roles": [role], "recovery": {"budget": {"type": "Unlimited"}, "replaceAfter": 100}}
    if freezes:
        spec["progress"] = {"onHang": "Restart", "timeoutSeconds": HANG_SECONDS}
    if kind == KEPT:
        spec["checkpoint"] = {"tiers": [{"name": "live", "scope": "Process", "source": {"type": "API"}}]}
    return {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": {"name": NAME}, "spec": spec}


class Gang:
    """A gang under `gangctl run`."""

    def __init__(
        self,
        folder: Path,
        members: int,
        kind: str,
        command: list[str],
        script: Path = WORKER,
        fault: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.steps, self.attempt, self.fault = Steps(folder, members, script), 1, fault
        path = folder / "bench.yaml"
        path.write_text(yaml.safe_dump(manifest(kind, self.steps, command[0], command[1:], fault)))
        self.state = folder / "state"
        run = [sys.executable, "-m", "gangctl", "run", str(path), "--plain", "--state-dir", str(self.state)]
        self.log = (folder / "run.log").open("w")
        self.process = subprocess.Popen(run, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def stepped(self) -> float:
        """When the last rank of the attempt has made its first step.

        Raises:
            TimeoutError: it did not.
        """
        return self.steps.wait(self.attempt, self.why)["step"]

    def why(self) -> str:
        """What it has printed, for an error."""
        return (self.steps.folder / "run.log").read_text()[-2000:]

    def pod(self, member: int) -> Path:
        """The folder of a member's pod."""
        return next((self.state / "gangs" / NAME / "pods").glob(f"*worker-{member}*"))

    def templates(self) -> list[int]:
        """The size of each template, in bytes, when all are ready."""
        logs = [self.pod(member) / "supervisor.log" for member in range(self.steps.ranks)]
        wait_until(lambda: all(template_bytes(log.read_text()) is not None for log in logs), self.why)
        return [template_bytes(log.read_text()) or 0 for log in logs]

    def restart(self, member: int) -> float:
        """Kill or stop a worker; returns the seconds until the last rank's first step."""
        workers = json.loads((self.pod(member) / "workers.json").read_text())
        began = time.time()
        os.kill(int(next(iter(workers))), self.fault)
        self.attempt += 1
        took = self.stepped() - began
        time.sleep(SETTLED_SECONDS)
        return took

    def started(self) -> tuple[int, int, int, str]:
        """How many processes the newest incident has forked and executed, how many went on, and lost steps."""
        status = json.loads((self.state / "gangs" / NAME / "gangjob.json").read_text())["status"]
        newest: dict[str, Any] = next((one for one in status["incidents"] if "warmStart" in one), {})
        warm: dict[str, int] = newest.get("warmStart", {})
        lost = str(newest.get("lostSteps", "-"))
        return warm.get("forked", 0), warm.get("executed", 0), warm.get("wentOn", 0), lost

    def end(self) -> None:
        """End the gang, and wait for it."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.log.close()


def measured(kind: str, members: int, restarts: int, command: list[str], fault: signal.Signals) -> tuple[str, float]:
    """A row of the table, and the median of its restarts in seconds."""
    with tempfile.TemporaryDirectory() as name:
        gang = Gang(Path(name), members, kind, command, fault=fault)
        try:
            began = time.monotonic()
            first = gang.stepped() - time.time() + time.monotonic() - began
            template = ""
            if kind != "Exec":
                sizes = gang.templates()
                template = f"{max(sizes) >> 20:>8} MiB {time.monotonic() - began:>8.1f} s"
            taken = Taken([gang.restart(at % members) for at in range(restarts)])
            forked, executed, on, lost = gang.started()
        finally:
            gang.end()
    return (
        f"{kind:>10} {members:>8} {first:>7.2f} {taken} {forked:>7} {executed:>9} {on:>8} {lost:>6} {template}",
        taken.median,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--restarts", type=int, default=8)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the workers")
    parser.add_argument("--kinds", nargs="*", default=[], help="only these: Exec, Fork, 'In process' ...")
    parser.add_argument("--modules", nargs="*", default=["jax", "jax.numpy"])
    parser.add_argument("--freeze", action="store_true", help="stop workers by SIGSTOP, do not kill them")
    given = parser.parse_args()
    fault = signal.SIGSTOP if given.freeze else signal.SIGKILL
    print(
        f"     start  members   first {TAKEN}  forked  executed  went on   lost     template  ready after", flush=True
    )
    medians = {}
    kinds = ("Exec", "Fork", NAMED, IN_PROCESS, *((KEPT,) if "torch" in given.modules else ()))
    for kind in given.kinds or kinds:
        row, medians[kind] = measured(kind, given.members, given.restarts, [given.python, *given.modules], fault)
        print(row, flush=True)
    if {"Exec", "Fork", IN_PROCESS} <= medians.keys():
        times = {kind: medians["Exec"] / medians[kind] for kind in ("Fork", IN_PROCESS)}
        print(f"Exec takes {times['Fork']:.1f} times as long as Fork, {times[IN_PROCESS]:.1f} times as in process.")


if __name__ == "__main__":
    main()
