"""From a fault to the last rank's first training step, with start type Exec and Fork: what docs/benchmarks.md quotes.

    python bench/warm_start.py                       4 members, 8 restarts of each kind
    python bench/warm_start.py --modules torch --python /usr/bin/python3

Two gangs of real processes under `gangctl run`, one after the other, with the same script: it imports the modules,
makes a first step (jitted with JAX, or of Adam in a gloo group, if they are imported), and waits. Workers are killed
one after the other, each of another member. A restart counts from just before the kill to the last rank's first step.
With Fork, the first kill waits until every member has a template; what that costs is in the last columns. `first` is
from `gangctl run` to the last rank's first step: with `Fork named`, the modules are in the manifest, so that start is
forked as well where the template is ready before the other members are.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

NAME = "bench"
NAMED = "Fork named"
"""Fork, and the modules that the script imports are named in the manifest."""
DEADLINE_SECONDS = 300.0
SCRIPT = """\
import importlib, os, sys, time
for name in sys.argv[2:]:
    importlib.import_module(name)
if "jax" in sys.modules:
    import jax
    jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64))).block_until_ready()
if "torch" in sys.modules:
    import torch
    torch.distributed.init_process_group("gloo")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(64)).sum().backward()
    for one in model.parameters():
        torch.distributed.all_reduce(one.grad)
    optimizer.step()
import gangclient
gangclient.connect().progress(1)
open(f"{sys.argv[1]}/{os.environ['GANG_ATTEMPT']}-{os.environ['RANK']}", "w").write(str(time.time()))
time.sleep(100000)
"""


def manifest(folder: Path, members: int, kind: str, command: list[str], text: str) -> dict[str, Any]:
    """A gang whose start is of this kind."""
    script = folder / "train.py"
    script.write_text(text)
    env = [{"name": "JAX_PLATFORMS", "value": "cpu"}, {"name": "USE_LIBUV", "value": "0"}]
    python, *modules = command
    container = {"name": "worker", "command": [python, str(script), str(folder), *modules], "env": env}
    start: dict[str, Any] = {"type": kind.partition(" ")[0]}
    if kind == NAMED:
        start["preload"] = {"type": "Modules", "modules": modules}
    role = {
        "name": "worker",
        "replicas": members,
        "start": start,
        "template": {"spec": {"containers": [container]}},
    }
    spec = {"roles": [role], "recovery": {"budget": {"type": "Unlimited"}, "replaceAfter": 100}}
    return {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": {"name": NAME}, "spec": spec}


class Gang:
    """A gang under `gangctl run`."""

    def __init__(self, folder: Path, members: int, kind: str, command: list[str], text: str = SCRIPT) -> None:
        self.folder, self.members, self.attempt = folder, members, 1
        path = folder / "bench.yaml"
        path.write_text(yaml.safe_dump(manifest(folder, members, kind, command, text)))
        self.state = folder / "state"
        run = [sys.executable, "-m", "gangctl", "run", str(path), "--plain", "--state-dir", str(self.state)]
        self.log = (folder / "run.log").open("w")
        self.process = subprocess.Popen(run, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def stepped(self) -> float:
        """When the last rank of the attempt has made its first step.

        Raises:
            TimeoutError: it did not.
        """
        paths = [self.folder / f"{self.attempt}-{rank}" for rank in range(self.members)]
        _until(lambda: all(path.exists() and path.read_text() for path in paths), self.folder)
        return max(float(path.read_text()) for path in paths)

    def pod(self, member: int) -> Path:
        """The folder of a member's pod."""
        return next((self.state / "gangs" / NAME / "pods").glob(f"*worker-{member}*"))

    def templates(self) -> list[int]:
        """The size of each template, in bytes, when all are ready."""
        logs = [self.pod(member) / "worker.log" for member in range(self.members)]
        _until(lambda: all("the template is ready" in log.read_text() for log in logs), self.folder)
        return [int(log.read_text().rpartition("mebibytes=")[2].split()[0]) << 20 for log in logs]

    def restart(self, member: int) -> float:
        """Kill a worker; returns the seconds until the last rank's first step."""
        workers = json.loads((self.pod(member) / "workers.json").read_text())
        began = time.time()
        os.kill(int(next(iter(workers))), signal.SIGKILL)
        self.attempt += 1
        took = self.stepped() - began
        time.sleep(0.5)  # Steps are reported, and what the start has left to do is done.
        return took

    def started(self) -> tuple[int, int]:
        """How many processes the newest incident has forked and executed."""
        status = json.loads((self.state / "gangs" / NAME / "gangjob.json").read_text())["status"]
        warm: dict[str, int] = next((one["warmStart"] for one in status["incidents"] if "warmStart" in one), {})
        return warm.get("forked", 0), warm.get("executed", 0)

    def end(self) -> None:
        """End the gang, and wait for it."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE_SECONDS)
        self.log.close()


def _until(found: Any, folder: Path) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not found():
        if time.monotonic() > end:
            raise TimeoutError((folder / "run.log").read_text()[-2000:])
        time.sleep(0.005)


def measured(kind: str, members: int, restarts: int, command: list[str]) -> tuple[str, float]:
    """A row of the table, and the median of its restarts in seconds."""
    with tempfile.TemporaryDirectory() as name:
        gang = Gang(Path(name), members, kind, command)
        try:
            began = time.monotonic()
            first = gang.stepped() - time.time() + time.monotonic() - began
            template = ""
            if kind != "Exec":
                sizes = gang.templates()
                template = f"{max(sizes) >> 20:>8} MiB {time.monotonic() - began:>8.1f} s"
            times = [gang.restart(at % members) for at in range(restarts)]
            forked, executed = gang.started()
        finally:
            gang.end()
    half = len(times) // 2
    flat = statistics.median(times[half:]) / statistics.median(times[:half])
    median = statistics.median(times)
    row = f"{kind:>10} {members:>8} {first:>7.2f} {median:>8.2f} {min(times):>7.2f} {max(times):>7.2f} {flat:>6.2f}"
    return f"{row} {forked:>7} {executed:>9} {template}", median


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--restarts", type=int, default=8)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the workers")
    parser.add_argument("--modules", nargs="*", default=["jax", "jax.numpy"])
    given = parser.parse_args()
    print("     start  members   first   median     min     max   flat  forked  executed     template  ready after")
    medians = {}
    for kind in ("Exec", "Fork", NAMED):
        row, medians[kind] = measured(kind, given.members, given.restarts, [given.python, *given.modules])
        print(row, flush=True)
    print(f"Exec takes {medians['Exec'] / medians['Fork']:.1f} times as long as Fork.")


if __name__ == "__main__":
    main()
