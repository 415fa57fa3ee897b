"""From a fault to the last rank's first training step, on a real cluster, by the way of restarting.

    python -m bench.first_step                                 what docs/benchmarks.md quotes (root; see e2e/)
    python -m bench.first_step --ways Fork --restarts 20       one way, and what 20 restarts leave behind
    python -m bench.first_step --ways Fork Exec --after 6      a fault 6 s after the first step of each of 8 new gangs

It starts its own cluster, or uses that of `make e2e-up`, and submits one gang after the other, each with the same
script and image (Debian's PyTorch: a step of Adam in a gloo group). Workers are killed one after the other, each of
another member. *Fork* is the default. *Torchrun*: below ``bash -c "exec torchrun ..."``. *In process* calls
gangclient.run: the failed rank is forked, all others go on. *Pods*: a rule deletes and recreates all pods. *JobSet*
recreates its pods, *JobSet in place* restarts their containers (``jobset.py``), and *JobSet by gangctl* has one
line more, ``managedBy``, and says as the gangs do that no pod is replaced for its faults. Where workers are forked, the
first kill waits until every member has a template. Two restarts before the first measured one fill caches.

`began` is the median until the last worker ran the first line of its script: without what the script itself costs.
`forked` and `went on` count processes of the last restart. The phases are medians of the incidents. What is
left behind is counted after the second and after the last restart, and more of it ends the program with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import jobset
from bench.leftovers import Leftovers
from bench.steps import TAKEN, Steps, Taken, template_bytes, wait_until
from e2e import clusters, gangs, installation, process_faults
from e2e.cluster.processes import Process, everything
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS, Gang
from gangctl.annexes.jobset.names import ANNOTATION_SPEC, CONTROLLER

NAME = "first-step"
IMAGE = "gangctl/examples-torch:e2e"
WARM_UP = 2
"""Restarts that are not measured."""
REPLACED_NEVER = {"replaceAfter": 100}
"""A member that is killed for the second time would get a new pod."""
SETTLED_SECONDS = 2.0
"""Pause between two restarts: their steps are reported, and no restart waits for its turn."""
PHASES = ("detect", "stop", "replace", "barrier", "start", "firstStep")


@dataclass(frozen=True)
class Way:
    """A way to restart."""

    start: str = "Exec"
    fault: signal.Signals = signal.SIGKILL
    keeps_pods: bool = True
    options: tuple[str, ...] = ()
    """Of the worker."""
    has_launcher: bool = False
    of_jobset: bool = False
    is_managed: bool = False
    """Whether gangctl runs the JobSet."""

    @property
    def is_foreign(self) -> bool:
        """Return whether gangctl has no part in it."""
        return self.of_jobset and not self.is_managed


WAYS = {
    "in process": Way(start="Fork", options=("--in-process",)),
    "Fork": Way(start="Fork"),
    "torchrun": Way(start="Fork", has_launcher=True),
    "Exec": Way(),
    "pods": Way(fault=signal.SIGUSR1, keeps_pods=False),
    "JobSet by gangctl": Way(start="Fork", of_jobset=True, is_managed=True),
    "JobSet in place": Way(of_jobset=True),
    "JobSet": Way(of_jobset=True, keeps_pods=False),
}


@dataclass(frozen=True)
class Bench:
    """A gang, or a JobSet, that is restarted in one way."""

    cluster: Cluster
    namespace: str
    way: Way
    steps: Steps
    gang: Gang

    def templates(self) -> list[int]:
        """The size of each member's template, in bytes, when all are ready."""
        logs = {member: self.gang.log(member) for member in self.gang.pods()}

        def ready() -> bool:
            for member, log in logs.items():
                if template_bytes(log) is None:
                    logs[member] = self.gang.log(member)
            return all(template_bytes(log) is not None for log in logs.values())

        wait_until(ready, self.why, every=2.0)
        return [template_bytes(log) or 0 for log in logs.values()]

    def restart(self) -> dict[str, float]:
        """Kill a worker; returns the seconds until each moment of the last rank in the next attempt."""
        attempt = self.steps.newest() + 1
        worker = self._worker(attempt % self.steps.ranks)
        began = time.time()
        worker.send(self.way.fault)
        took = {name: at - began for name, at in self.steps.wait(attempt, self.why).items()}
        time.sleep(SETTLED_SECONDS)
        return took

    def _worker(self, rank: int) -> Process:
        if self.way.is_foreign or self.way.has_launcher:
            ranks = [one for one in everything() if re.match(process_faults.RANK, one.command)]
            return next(one for one in ranks if one.environment.get("RANK") == str(rank))
        return process_faults.worker(list(self.gang.uids().values())[rank])

    def phases(self) -> str:
        """The medians of the phases of the newest incidents, in milliseconds."""
        if self.way.is_foreign:
            return "not known"
        found = [incident["milliseconds"] for incident in self.gang.status["incidents"]]
        known = {name: [one[name] for one in found if name in one] for name in PHASES}
        medians = ", ".join(f"{name} {statistics.median(times):.0f}" for name, times in known.items() if times)
        obstacle = self._warm_start().get("obstacle", "")
        return f"{medians}; executed, because {obstacle}" if obstacle else medians

    def starts(self) -> tuple[int, int]:
        """How many processes the newest incident that knows it has forked, and how many went on."""
        if self.way.is_foreign:
            return 0, 0
        warm = self._warm_start()
        return warm.get("forked", 0), warm.get("wentOn", 0)

    def _warm_start(self) -> dict[str, Any]:
        incidents = self.gang.status["incidents"]
        return next((one["warmStart"] for one in incidents if "warmStart" in one), {})

    def why(self) -> str:
        """Its state and the newest lines of a worker, for an error."""
        if self.way.is_foreign:
            return self.cluster.kubectl("get", "jobsets,jobs,pods", "-n", self.namespace, "-o", "wide")
        status = self.gang.status
        logs = "".join(self.gang.log(member)[-1000:] for member in list(self.gang.pods())[:1])
        return f"{status.get('phase')}: {status.get('message')}\n{logs}"


def document(way: Way, steps: Steps) -> dict[str, Any]:
    """The gang."""
    rules = [{"name": "all-anew", "action": "Ignore", "level": "Gang", "onSignals": ["SIGUSR1"]}]
    command = steps.command("python3", CHECKPOINTS, ["torch"], way.options)
    if way.has_launcher:
        command = ["bash", "-c", f"exec torchrun {shlex.join(command[1:])}"]
    container = {
        "name": "main",
        "image": IMAGE,
        "command": command,
        "env": [{"name": "USE_LIBUV", "value": "0"}],
        "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
    }
    made = gangs.gang(
        NAME,
        container,
        replicas=steps.ranks,
        directory=str(steps.folder),
        recovery={"budget": {"type": "Unlimited"}, **REPLACED_NEVER},
        podFailurePolicy={"rules": rules},
    )
    made["spec"]["roles"][0] |= {"start": {"type": way.start}, "launch": "Torchrun" if way.has_launcher else "Command"}
    return made


def of_jobset(way: Way, steps: Steps) -> dict[str, Any]:
    """The same as a JobSet."""
    spec = document(way, steps)["spec"]["roles"][0]["template"]["spec"]
    pod = jobset.plain(spec, steps, f"{NAME}-{jobset.JOB}-0-0.{NAME}", CHECKPOINTS)
    in_place = way.keeps_pods and not way.is_managed
    if in_place:
        pod = jobset.under_agent(pod, steps, CHECKPOINTS)
    made = jobset.manifest(NAME, steps.ranks, pod, in_place=in_place)
    if way.is_managed:
        made["spec"]["managedBy"] = CONTROLLER
        made["metadata"]["annotations"] = {ANNOTATION_SPEC: json.dumps({"recovery": REPLACED_NEVER})}
    return made


@contextmanager
def submitted(cluster: Cluster, namespace: str, way: Way, members: int) -> Iterator[Bench]:
    """A gang that trains; it is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="gangctl-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        steps = Steps(Path(folder), members)
        bench = Bench(cluster, namespace, way, steps, Gang(cluster.kubectl, namespace, NAME))
        bench.gang.apply((of_jobset if way.of_jobset else document)(way, steps))
        try:
            steps.wait(1, bench.why)
            yield bench
        finally:
            cluster.kubectl("delete", "jobset" if way.of_jobset else "gj", NAME, "-n", namespace)
            pods = ("get", "pods", "-n", namespace, "-o", "name")
            wait_until(lambda: not cluster.kubectl(*pods), lambda: "its pods remain", every=0.5)


@dataclass(frozen=True)
class Row:
    """What was measured of one way."""

    way: str
    members: int
    taken: Taken
    began: float
    """Seconds until the last worker ran the first line of its script, median."""
    starts: tuple[int, int]
    template: int
    phases: str
    load: float
    left: Sequence[str]

    def __str__(self) -> str:
        template = f"{self.template >> 20:>5} MiB" if self.template else f"{'':9}"
        forked, went_on = self.starts
        times = f"{self.taken} {self.began:6.2f}"
        return f"{self.members:>7} {self.way:>17} {times} {forked:>7} {went_on:>7} {template} {self.load:>5.1f}"


def measured(cluster: Cluster, namespace: str, name: str, members: int, restarts: int, end: float) -> Row:
    """Restart a gang in one way. ``end``: when to stop, on the monotonic clock, if there were two restarts at least."""
    way = WAYS[name]
    with submitted(cluster, namespace, way, members) as bench:
        template = max(bench.templates()) if way.start == "Fork" else 0
        for _ in range(WARM_UP):
            bench.restart()
        # A JobSet's member that fails twice gets a new pod, which has less of everything.
        before = Leftovers.now(bench.gang.uids().values()) if way.keeps_pods and not way.of_jobset else None
        times, began = list[float](), list[float]()
        while len(times) < restarts:
            took = bench.restart()
            times.append(took["step"])
            began.append(took["script"])
            announce(f"{name}, {members} members, restart {len(times)}: {times[-1]:.2f} s, begun at {began[-1]:.2f} s")
            if len(times) > 1 and time.monotonic() > end:
                announce("the time is over")
                break
        left = [] if before is None else before.grown(Leftovers.now(bench.gang.uids().values()), len(times))
        if before is not None:
            announce(f"left behind by {len(times)} restarts: {before} -> {Leftovers.now(bench.gang.uids().values())}")
        load = os.getloadavg()[0]
        begins = statistics.median(began)
        return Row(name, members, Taken(times), begins, bench.starts(), template, bench.phases(), load, left)


def measured_early(cluster: Cluster, namespace: str, name: str, members: int, restarts: int, after: float) -> Row:
    """Kill a worker of each new gang, so many seconds after its last rank's first step: a template may not be ready."""
    times, began = list[float](), list[float]()
    while True:
        with submitted(cluster, namespace, WAYS[name], members) as bench:
            time.sleep(after)  # The age of the gang that is measured.
            took = bench.restart()
            times.append(took["step"])
            began.append(took["script"])
            announce(f"{name}, {members} members, gang {len(times)}: {times[-1]:.2f} s, begun at {began[-1]:.2f} s")
            if len(times) == restarts:
                load, begins = os.getloadavg()[0], statistics.median(began)
                return Row(name, members, Taken(times), begins, bench.starts(), 0, bench.phases(), load, ())


def main() -> int:
    """Print the table; returns the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--members", type=int, nargs="*", default=[4], help="sizes of gangs (default: 4)")
    flags.add_argument("--restarts", type=int, default=8, help="measured restarts of each way (default: 8)")
    flags.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    flags.add_argument(
        "--after", type=float, metavar="SECONDS", help="restart new gangs, so long after their first step"
    )
    flags.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS", help="begin no restart after this")
    flags.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = flags.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    end = time.monotonic() + options.limit
    rows = []
    with clusters.open_cluster() as cluster:
        cluster.image("examples-torch")
        installation.install(cluster)
        if any(WAYS[name].is_managed for name in options.ways):
            installation.enable(cluster, "jobsets")
        with ExitStack() as stack:
            if any(WAYS[name].of_jobset for name in options.ways):
                stack.enter_context(jobset.running(cluster))
            namespace = stack.enter_context(cluster.namespace("bench"))
            cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=jobset.ACCESS)
            if options.output == "table":
                print(f"{os.cpu_count()} cores; seconds from the fault to the last rank's first step")
                print(f"members               way {TAKEN}  began  forked went on  template  load", flush=True)
            for members in options.members:
                for name in options.ways:
                    if options.after is None:
                        row = measured(cluster, namespace, name, members, options.restarts, end)
                    else:
                        row = measured_early(cluster, namespace, name, members, options.restarts, options.after)
                    rows.append(row)
                    if options.output == "table":
                        print(f"{row}\n{'':25} milliseconds: {row.phases}", flush=True)
    if options.output == "json":
        seconds = [{"way": row.way, "members": row.members, "seconds": list(row.taken.seconds)} for row in rows]
        print(json.dumps(seconds))
    for row in rows:
        others = [(one, one.taken.median / row.taken.median) for one in rows if one.members == row.members]
        told = ", ".join(f"{one.way} {ratio:.1f}" for one, ratio in others if ratio > 1)
        if told and options.output == "table":
            print(f"{row.members} members, times as long as {row.way}: {told}")
    left = [f"{row.way}: {what}" for row in rows for what in row.left]
    for what in left:
        print(what, file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
