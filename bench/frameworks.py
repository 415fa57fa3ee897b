"""What works with which framework, launch mode and way to start, and what a fault costs it. On a real cluster.

    python -m bench.frameworks                               all of it (root; see e2e/): half an hour
    python -m bench.frameworks --only Lightning PerProcess   what has all these words in its name
    python -m bench.frameworks --write                       also write each line into docs/reference/frameworks.md

It starts its own cluster, or uses that of `make e2e-up`. Each line is a gang of two ranks and a spare, which trains
with a pause of 0.1 s after each step, and saves every ten steps (slow storage: every fifty; memory: each). Half-way
between two saves a rank is killed, then a pod deleted, then a restart asked for. Each must restore one step on all
ranks, as the incident says, and train on. The seconds count from the fault until all ranks have made their first step;
the steps are those that are made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench.steps import template_bytes
from bench.worker import IN_PROCESS
from e2e import clusters, installation, process_faults
from e2e.cluster.processes import Process
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.frameworks.examples import document
from e2e.gangs import CHECKPOINTS, Gang
from tests.wait import until

DOCS: Final = Path(__file__).parents[1] / "docs/reference/frameworks.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
WORKER: Final = Path(__file__).with_name("framework_worker.py")
NAME, RANKS = "matrix", 2
FIRST_SECONDS, SECONDS = 150.0, 60.0
"""For the first step of a gang, or its templates, which are made at low priority; and for a restart."""
SLOW_SECONDS = "3"
"""For each checkpoint that is written to slow storage, or read from it."""
LAUNCHES = ("Command", "PerProcess", "Torchrun")


@dataclass(frozen=True)
class Framework:
    """An example; ``options`` are those of its script."""

    example: str
    variables: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    every: int = 10
    """Steps between two checkpoints."""
    launches: Sequence[str] = LAUNCHES
    in_process: bool = True
    """Whether its ``main`` can be called again in the same process."""


TORCH_OPTIONS = ("--steps", "100000", "--pause", "0")
_slow = partial(Framework, variables={"SLOW_SECONDS": SLOW_SECONDS}, launches=("PerProcess",), in_process=False)
FRAMEWORKS: Final = {
    "PyTorch, DDP": Framework("frameworks/fsdp2", {"DDP": "1"}),
    "PyTorch, DDP, asynchronous save": Framework(
        "frameworks/fsdp2", {"DDP": "1", "ASYNC": "1"}, launches=("PerProcess",)
    ),
    "Lightning": Framework("frameworks/lightning"),
    "Trainer": Framework("frameworks/trainer"),
    "Accelerate": Framework("frameworks/accelerate", launches=("PerProcess",), in_process=False),
    "JAX, Orbax": Framework("frameworks/orbax", launches=("Command", "PerProcess"), in_process=False),
    "PyTorch, slow storage": _slow("pytorch", options=(*TORCH_OPTIONS, "--save-every", "50"), every=50),
    "PyTorch, memory with peers": _slow("memory", options=(*TORCH_OPTIONS, "--save-every", "1000")),
}


@dataclass(frozen=True)
class Line:
    """A line of the matrix."""

    framework: str
    launch: str
    start: str

    def __str__(self) -> str:
        return f"{self.framework} | {self.launch} | {self.start}"


@dataclass(frozen=True)
class Cost:
    """What a fault has cost."""

    seconds: float
    steps: int

    def __str__(self) -> str:
        return f"{self.seconds:.1f}, {self.steps}"


class NotWorkingError(Exception):
    """Why it does not work."""


@dataclass(frozen=True)
class Trial:
    """A gang of one line."""

    gang: Gang
    folder: Path
    every: int

    def first_steps(self, attempt: int) -> list[dict[str, float]]:
        """What the ranks have noted of their first step in an attempt."""
        paths = [self.folder / f"{attempt}-{rank}" for rank in range(RANKS)]
        return [json.loads(path.read_text()) for path in paths if path.exists()]

    def workers(self) -> dict[str, Process]:
        """Member -> its worker; a spare has none."""
        found = {member: process_faults.workers(uid) for member, uid in sorted(self.gang.uids().items())}
        return {member: processes[0] for member, processes in found.items() if processes}

    def newest(self) -> int:
        """The newest step that any rank has made; 0 if none has."""
        return max((json.loads(path.read_text())["step"] for path in self.folder.glob("newest-?")), default=0)

    def until(self, what: str, holds: Callable[[], object], seconds: float) -> None:
        """Wait for something.

        Raises:
            NotWorkingError: it does not come.
        """
        try:
            until(what, holds, seconds, every=0.02)
        except TimeoutError:
            status = self.gang.status
            log = "".join(self.gang.log(member)[-1500:] for member in list(self.gang.pods())[:RANKS])
            announce(log)
            raise NotWorkingError(
                f"no {what} in {seconds:.0f} s; {status.get('phase')}: {status.get('message')}"
            ) from None

    def begins(self, attempt: int, seconds: float) -> float:
        """When the last rank made its first step in an attempt.

        Raises:
            NotWorkingError: they don't, or begin at different steps.
        """
        self.until(f"first step of attempt {attempt}", lambda: len(self.first_steps(attempt)) == RANKS, seconds)
        if len({one["number"] for one in self.first_steps(attempt)}) != 1:
            raise NotWorkingError(f"ranks begin at different steps: {self.first_steps(attempt)}")
        return max(one["step"] for one in self.first_steps(attempt))

    def settles(self, *, warm: bool) -> None:
        """Wait until the attempt that has begun is half-way between two checkpoints of its own, with its templates."""
        if warm:
            self.until("templates", self._has_templates, FIRST_SECONDS)
        enough = (self.newest() // self.every + 1) * self.every + self.every // 2
        self.until(f"step {enough}", lambda: self.newest() >= enough, SECONDS)

    def _has_templates(self) -> bool:
        logs = map(self.gang.log, list(self.gang.pods()))
        return sum(template_bytes(log) is not None for log in logs) >= RANKS

    def cost(self, attempt: int, strike: Callable[[], None]) -> Cost:
        """Strike, and see what the restart into this attempt costs."""
        began = time.time()
        strike()
        made = self.newest()
        seconds = self.begins(attempt, SECONDS) - began
        found = [one for one in self.gang.status["incidents"] if one["attempt"] == attempt]
        restored = int(found[0].get("restoredStep", 0)) if found else 0
        first = int(self.first_steps(attempt)[0]["number"])
        if first != restored + 1:
            raise NotWorkingError(f"step {restored} was agreed on, and the ranks went on with step {first}")
        return Cost(seconds, max(0, made - restored))


def killed(trial: Trial, launch: str) -> None:
    """Kill a rank."""
    process = list(trial.workers().values())[-1]
    ranks = [child for child in process.children if "RANK" in child.environment] if launch == "Torchrun" else []
    (ranks or [process])[0].send(signal.SIGKILL)


def deleted(trial: Trial, _launch: str) -> None:
    """Delete a pod, as a lost node would."""
    pod = trial.gang.pods()[next(iter(trial.workers()))]["metadata"]["name"]
    trial.gang.kubectl("delete", "pod", pod, "-n", trial.gang.namespace, "--wait=false")


def asked(trial: Trial, _launch: str) -> None:
    """Ask for a restart, as `gangctl restart` does."""
    trial.gang.patch(restartToken="asked")


FAULTS: Final = {"killed rank": killed, "lost pod, a spare": deleted, "planned restart": asked}


@contextmanager
def submitted(cluster: Cluster, namespace: str, line: Line) -> Iterator[Trial]:
    """A gang that trains; it is deleted afterwards."""
    framework = FRAMEWORKS[line.framework]
    with tempfile.TemporaryDirectory(prefix="gangctl-bench-", ignore_cleanup_errors=True) as top:
        Path(top).chmod(0o755)
        folder = Path(top, "checkpoints")
        made = document(NAME, framework.example, {"STEPS": "100000", **framework.variables}, folder)
        shutil.copy(WORKER, folder)
        (role,) = made["spec"]["roles"]
        role |= {"replicas": RANKS, "spares": 1, "launch": line.launch}
        role["start"] = {"type": "Exec" if line.start == "Exec" else "Fork"}
        container = role["template"]["spec"]["containers"][0]
        python = "torchrun" if line.launch == "Torchrun" else "python3"
        ways = [IN_PROCESS] if line.start == "in process" else []
        script = f"{CHECKPOINTS}/{Path(container['command'][1]).name}"
        container["command"] = [python, f"{CHECKPOINTS}/{WORKER.name}", *ways, script, *framework.options]
        trial = Trial(Gang(cluster.kubectl, namespace, NAME), folder, framework.every)
        trial.gang.apply(made)
        try:
            yield trial
        finally:
            cluster.kubectl("delete", "gj", NAME, "-n", namespace)
            until("the end of its pods", lambda: not trial.gang.pods(), 120, every=0.5)


def tried(cluster: Cluster, namespace: str, line: Line) -> Iterator[Cost]:
    """What each fault costs, as it is known.

    Raises:
        NotWorkingError: it does not work.
    """
    with submitted(cluster, namespace, line) as trial:
        trial.begins(1, FIRST_SECONDS)
        for attempt, strike in enumerate(FAULTS.values(), 2):
            trial.settles(warm=line.start != "Exec")
            yield trial.cost(attempt, partial(strike, trial, line.launch))


def lines() -> Iterator[Line]:
    """Launch modes with Exec, ways to start with PerProcess (Command has the same), and forks below torchrun."""
    for name, framework in FRAMEWORKS.items():
        yield from (Line(name, launch, "Exec") for launch in LAUNCHES if launch in framework.launches)
        yield from (Line(name, launch, "Fork") for launch in LAUNCHES[1:] if launch in framework.launches)
        if framework.in_process:
            yield Line(name, "PerProcess", "in process")


def written() -> dict[str, Sequence[str]]:
    """The rows that the docs have: those that are not measured again stay."""
    lines = DOCS.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines[3:]]
    return {" | ".join(row[:3]): row[3:] for row in rows}


def write(rows: Mapping[str, Sequence[str]]) -> None:
    """Write the table, with all rows that can be asked for and are known."""
    head = ["framework", "launch", "start", *(f"{fault} (s, steps)" for fault in FAULTS)]
    said = [f"| {line} | {' | '.join(rows[str(line)])} |" for line in lines() if str(line) in rows]
    table = "\n".join([f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |", *said])
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    """Print the table; returns the exit code: 1 if something did not work."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--only", nargs="*", default=[], metavar="WORD")
    flags.add_argument("--write", action="store_true", help=f"write each line into {DOCS.name}")
    options = flags.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    rows, worked = written() if options.write else {}, True
    with clusters.open_cluster() as cluster:
        cluster.image("examples-frameworks")
        installation.install(cluster)
        with cluster.namespace("bench") as namespace:
            for line in lines():
                if not all(word in str(line) for word in options.only):
                    continue
                cells: list[str] = []
                try:
                    cells.extend(map(str, tried(cluster, namespace, line)))
                except NotWorkingError as error:
                    announce(f"{line}: {error}")
                    cells.append("no")
                    worked = False
                rows[str(line)] = [*cells, *["not tried"] * (len(FAULTS) - len(cells))]
                print(f"| {line} | {' | '.join(rows[str(line)])} | load {os.getloadavg()[0]:.1f}", flush=True)
                if options.write:
                    write(rows)
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main())
