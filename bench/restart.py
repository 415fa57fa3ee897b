"""Restart latency by phase, status writes a restart, and memory: what docs/benchmarks.md quotes.

    make bench                                     the table of the docs
    python bench/restart.py --members 4 --restarts 50
    python bench/restart.py --members 4 --checks MatMul AllReduce     a row for each check that gangctl brings along

Each row is one gang of real processes under `gangctl run`. Its workers only sleep, so that their start-up costs nothing
and they end at once on SIGTERM; rank 0 reports a step, so that the next restart does not wait (restart back-off).
Workers are killed one after the other, each of another member. The total is from just before the kill to the exec of
the last worker, as its supervisor reports it; the phases are those of the incident.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from gangctl.api.gangjob import BuiltinCheck
from gangctl.api.status import GangPhase
from gangctl.cli.gang_view import GangView, view_gang
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory

NAME = "bench"
DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.05
WRITES = 2
"""Maximum status writes for a restart."""


@dataclass(frozen=True)
class Restart:
    """One restart. Times in milliseconds."""

    total: float
    detect: float
    stop: float
    barrier: float
    check: float
    start: float
    writes: int


SCOPES = ("Member", "Pair", "Gang")
SCOPE = {BuiltinCheck.ALL_REDUCE: "Pair", BuiltinCheck.CLOCK_SKEW: "Gang"}
"""Of the others: Member."""
ARGS = {BuiltinCheck.MOUNT: ["--path", "/proc/self", "--read-only"], BuiltinCheck.DISK: ["--path", "."]}
BUILTINS = tuple(str(one) for one in BuiltinCheck)


def checks(extra: str) -> list[dict[str, object]]:
    """A check that gangctl brings along, with its defaults, or one of this scope that ends at once."""
    if extra in BUILTINS:
        scope = SCOPE.get(BuiltinCheck(extra), "Member")
        args = ARGS.get(BuiltinCheck(extra), [])
        return [{"name": "builtin", "when": "Fault", "scope": scope, "builtin": extra, "args": args}]
    return [{"name": "none", "when": "Fault", "scope": extra, "command": ["true"]}] if extra in SCOPES else []


def manifest(members: int, checkpoints: Path | None, extra: str) -> str:
    """A gang of sleepers.

    ``checkpoints``: a Shared directory that is scanned in each restart, or none. ``extra``: a check, or something else.
    """
    step = '[ "$RANK" = 0 ] && python3 -c "import gangclient; gangclient.connect().progress(2)"'
    container = {"name": "worker", "command": ["sh", "-c", f"({step}) & exec sleep 1000000"]}
    spec: dict[str, object] = {
        "roles": [{"name": "worker", "replicas": members, "template": {"spec": {"containers": [container]}}}],
        "recovery": {"budget": {"type": "Unlimited"}, "replaceAfter": 100, "checks": checks(extra)},
    }
    if checkpoints is not None:
        source = {"type": "Directory", "directory": str(checkpoints), "layout": "Pattern", "pattern": "step-{step}"}
        spec["checkpoint"] = {"tiers": [{"name": "shared", "scope": "Shared", "source": source | {"complete": "DONE"}}]}
    job = {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": {"name": NAME}, "spec": spec}
    return yaml.safe_dump(job)


def until(what: str, found: Callable[[], GangView | None]) -> GangView:
    """Poll until the function finds a view.

    Raises:
        TimeoutError: it found none in time.
    """
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        seen = found()
        if seen is not None:
            return seen
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"{what} within {DEADLINE_SECONDS:.0f} s")


def worker_of(supervisor: int) -> int:
    """The process id of the worker that this supervisor started."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return int(children[0])


def resident(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Gang:
    """A gang of sleepers under `gangctl run`."""

    def __init__(self, members: int, folder: Path, extra: str) -> None:
        directory = folder / "checkpoints"
        if extra == "directory":
            (directory / "step-1").mkdir(parents=True)
            (directory / "step-1" / "DONE").touch()
        path = folder / "bench.yaml"
        path.write_text(manifest(members, directory if extra == "directory" else None, extra))
        self.state = StateDirectory(folder / "state")
        self.store = GangStore(self.state.gang(NAME))
        self.log = (folder / "run.log").open("w")
        command = [sys.executable, "-m", "gangctl", "run", str(path), "--plain", "--state-dir", str(self.state.path)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def running(self, attempt: int) -> GangView | None:
        """A view of the gang once every worker of the attempt has started, and one has reported its step."""
        if self.process.poll() is not None:
            raise RuntimeError(f"gangctl run ended: {Path(self.log.name).read_text()[-2000:]}")
        if self.store.stamp() is None:
            return None
        job = self.store.read()
        if job.status.attempt < attempt or job.status.phase is not GangPhase.RUNNING:
            return None
        seen = view_gang(self.state, self.store, time.time())
        started = all(member.phase == "Running" for member in seen.snapshot.members)
        stepped = any(member.step is not None for member in seen.snapshot.members)
        return seen if seen.live and started and stepped else None

    def restart(self, before: GangView, member: int) -> tuple[GangView, Restart]:
        """Kill one worker, and wait until all workers run again."""
        pods = sorted((pod for pod in before.pods if pod.supervisor), key=lambda pod: pod.name)
        supervisor = pods[member % len(pods)].supervisor
        if supervisor is None:
            raise RuntimeError("a pod has no supervisor")
        version = int(self.store.read().metadata.resource_version)
        pid = worker_of(supervisor.pid)
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        attempt = before.snapshot.status.attempt + 1
        after = until(f"attempt {attempt} of the gang", lambda: self.running(attempt))
        incident = after.snapshot.status.incidents[0]
        times = incident.milliseconds
        settled = incident.settled_time or 0.0
        return after, Restart(
            total=(settled - killed) * 1000 + (times.start or 0),
            detect=(incident.time - killed) * 1000,
            stop=times.stop or 0,
            barrier=times.barrier or 0,
            check=times.check or 0,
            start=times.start or 0,
            writes=int(self.store.read().metadata.resource_version) - version,
        )

    def end(self) -> None:
        """End the gang as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE_SECONDS)
        self.log.close()


def measure(members: int, restarts: int, extra: str = "") -> None:
    """One row of the table. ``extra``: what a restart has more: a ``directory``, or a check (``checks``)."""
    folder = Path(tempfile.mkdtemp(prefix="gangctl-bench-"))
    gang = Gang(members, folder, extra)
    try:
        seen = until("the gang", lambda: gang.running(1))
        found: list[Restart] = []
        for at in range(restarts + 1):
            seen, one = gang.restart(seen, at)
            if at:  # the first warms up
                found.append(one)
        sidecars = [resident(pod.sidecar.pid) for pod in seen.pods if pod.sidecar]
        supervisors = [resident(pod.supervisor.pid) for pod in seen.pods if pod.supervisor]
    finally:
        gang.end()
        shutil.rmtree(folder, ignore_errors=True)
    half = len(found) // 2
    totals = [one.total for one in found]
    flat = statistics.median(totals[half:]) / statistics.median(totals[:half]) if half else 1.0

    def median(name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in found))

    label = f"{members} + {extra}" if extra else str(members)
    print(
        f"{label:>14} {median('total'):8.0f} {min(totals):6.0f} {max(totals):6.0f} {median('detect'):7.0f} "
        f"{median('stop'):5.0f} {median('barrier'):8.0f} {median('check'):6.0f} {median('start'):6.0f} {flat:6.2f} "
        f"{max(one.writes for one in found):7d} {max(sidecars):8.1f} {max(supervisors):11.1f}",
        flush=True,
    )
    if not checks(extra) and max(one.writes for one in found) > WRITES:
        print(f"  more than {WRITES} status writes in a restart", flush=True)


def main() -> None:
    """Print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--members", type=int, nargs="*", default=[4, 16, 64])
    flags.add_argument("--restarts", type=int, default=20)
    flags.add_argument("--checks", nargs="*", choices=BUILTINS, help="instead: restarts with these, one at a time")
    options = flags.parse_args()
    print(f"{options.restarts} restarts each, {os.cpu_count()} cores; milliseconds, medians; memory: the largest, MB")
    print(
        f"{'members':>14} {'total':>8} {'min':>6} {'max':>6} {'detect':>7} {'stop':>5} {'barrier':>8} {'check':>6} "
        f"{'start':>6} {'flat':>6} {'writes':>7} {'sidecar':>8} {'supervisor':>11}"
    )
    for members in () if options.checks else options.members:
        measure(members, options.restarts)
    for extra in options.checks or ("directory", *SCOPES):
        measure(options.members[0], options.restarts, extra)


if __name__ == "__main__":
    main()
