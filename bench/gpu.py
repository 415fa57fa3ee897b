"""A restart on a GPU by phase, executed, forked and in the same process; memory after SIGKILL, forks, and checks.

    python -m bench.gpu                     a GPU, 1.3 billion parameters; no Kubernetes, no network, no root
    python -m bench.gpu --device cpu        the same with gloo and a smaller model

It needs Linux, a checkout, Python 3.11 or newer, PyTorch, and for compiled layers g++ with the headers of Python. On
a machine with network and the same Python, make a folder of wheels, and take it along with the checkout:

    pip wheel --wheel-dir wheels ./sidecar ./client . torch

On the machine with the GPU, in the checkout:

    python -m venv venv && venv/bin/pip install --no-index --find-links wheels gangctl gangclient torch
    venv/bin/python -m bench.gpu

The weights are random, and are read from the page cache: TMPDIR and the memory must have room for them (2.7 GB; 13 GB
with ``--size 6.7b``). Each way to restart is a gang of one rank under `gangctl run`; its restarts are planned, as by
`gangctl restart`, so that all ways start from the same event, and a process may go on. `start` is from the request to
the first line of the script or of `train`, `context` up to the result of a first product on the device, `group` up to
that of a first all-reduce, `load` up to the weights on the device, with what building the model imports; `step` is the
first training step, with all that is compiled for it, `next` the second. `total` is from the request to the end of the
first step. Seconds, medians.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.gpu_worker import SIZES
from bench.steps import wait_until
from bench.warm_start import IN_PROCESS, NAME, SETTLED_SECONDS, Gang
from gangctl.api.model import changed
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangsidecar.install import build_archive
from gangsidecar.supervisor.checks import BUILTIN
from tests.ports import free_port

COUNT: Final = "import torch; print(torch.cuda.device_count())"
WORKER: Final = Path(__file__).with_name("gpu_worker.py")
DOCS: Final = Path(__file__).parents[1] / "docs/benchmarks.md"
BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"
PHASES: Final = {
    "start": "script",
    "import": "imported",
    "context": "context",
    "group": "group",
    "load": "loaded",
    "step": "step",
}
"""Phase -> the moment at which it ends."""
WAYS: Final = ("Exec", "Fork", IN_PROCESS)


@dataclass(frozen=True)
class Row:
    """Starts of one kind; the seconds are medians."""

    way: str
    process: str
    """How the worker has come to its attempt."""
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.way:>17} {self.process:>8}" + "".join(f"{one:8.2f}" for one in self.seconds.values())


@dataclass(frozen=True)
class Figures:
    """All that was measured."""

    device: Mapping[str, Any]
    size: str
    rows: Sequence[Row]
    memory: Mapping[str, float]
    """MiB and seconds of a process that is killed."""
    forks: Sequence[Mapping[str, Any]]
    checks: Sequence[Mapping[str, Any]]
    """The built-in checks of devices: exit codes, seconds, and what rank 0 said."""
    load: float

    def __str__(self) -> str:
        device, memory, total = self.device, self.memory, {row.way: row.seconds["total"] for row in self.rows}
        compiled = "compiled layer by layer" if device["compiles"] else "not compiled: no g++"
        least = min(total, key=lambda way: total[way])
        ratios = (f"{way} {seconds / total[least]:.1f}" for way, seconds in total.items() if way != least)
        forks = ((one["after"], one["error"] or f"works, {one['seconds']:.2f} s") for one in self.forks)
        return "\n".join(
            [
                f"{device['card']}; PyTorch {device['torch']}, CUDA {device['cuda'] or 'none'}; load {self.load:.1f}",
                f"{device['parameters'] / 1e6:,.0f} million parameters, {compiled}; seconds",
                f"{'':17} {'process':>8}" + "".join(f"{name:>8}" for name in self.rows[0].seconds),
                *map(str, self.rows),
                f"times as long as {least}: {', '.join(ratios)}",
                f"a process uses {memory['context']:.0f} MiB with a context, {memory['weights']:.0f} with weights",
                f"after SIGKILL: ended after {memory['ended']:.2f} s, memory free after {memory['free']:.2f} s",
                *(f"fork after {state}: {outcome}" for state, outcome in forks),
                *("check {name}, {codes}, {seconds:.1f} s: {said}".format(**one) for one in self.checks),
            ]
        )


@dataclass(frozen=True)
class Bench:
    """The options, and the folder with the weights."""

    python: str
    device: str
    size: str
    folder: Path

    @contextmanager
    def asked(self, question: str) -> Iterator[subprocess.Popen[str]]:
        """The program that answers; it ends afterwards."""
        command = [self.python, str(WORKER), str(self.folder), self.device, self.size, question]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def answers(self, question: str) -> list[dict[str, Any]]:
        """All its answers.

        Raises:
            SystemExit: it has failed, and said why.
        """
        with self.asked(question) as process:
            output = process.communicate()[0]
        if process.returncode:
            raise SystemExit(f"error: {question} has failed; without a GPU, use --device cpu")
        return [json.loads(line) for line in output.splitlines()]

    def memory(self) -> dict[str, float]:
        """MiB of a process with a context and with weights; seconds from SIGKILL to its end, and to free memory."""
        with self.asked("watch") as watch, self.asked("hold") as hold:

            def used() -> int:
                return int(answer(watch, str(hold.pid))["bytes"])

            before = used() if self.device == "cuda" else 0
            answer(hold)
            context = used() - before
            answer(hold, "load")
            weights = used() - before
            began = time.monotonic()
            hold.kill()
            hold.wait()
            ended = time.monotonic() - began
            wait_until(lambda: used() - before < context / 2, lambda: "its memory isn't free")
            free = time.monotonic() - began
        return {"context": context / 2**20, "weights": weights / 2**20, "ended": ended, "free": free}

    def checks(self) -> Iterator[dict[str, Any]]:
        """Run those that gangctl brings along for devices; a group has a rank for each device, and two at least."""
        archive = self.folder / "supervisor.pyz"
        build_archive(archive)
        count = subprocess.run([self.python, "-c", COUNT], check=True, capture_output=True, text=True).stdout
        devices = [str(at) for at in range(int(count))] if self.device == "cuda" else []
        each = devices if len(devices) > 1 else [",".join(devices)] * 2
        for name, visible in (
            ("MatMul", [",".join(devices)]),
            ("DeviceCopy", [",".join(devices)]),
            ("AllReduce", each),
        ):
            place = {"SIZE": len(visible), "HOST": "127.0.0.1", "PORT": free_port()}
            began = time.monotonic()
            ranks = []
            for rank, those in enumerate(visible):
                variables = {f"GANG_CHECK_{key}": str(value) for key, value in {**place, "RANK": rank}.items()}
                environment = os.environ | variables | {"CUDA_VISIBLE_DEVICES": those}
                command = [self.python, "-c", BUILTIN, str(archive), name]
                ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
            said = [rank.communicate()[0].splitlines() for rank in ranks]
            codes = [rank.returncode for rank in ranks]
            yield {"name": name, "codes": codes, "seconds": time.monotonic() - began, "said": (said[0] or [""])[-1]}

    def rows(self, ways: Sequence[str], restarts: int) -> Iterator[Row]:
        """The first start, when nothing is compiled, and the restarts in each way."""
        for way in ways:
            folder = self.folder / way
            folder.mkdir()
            (folder / "weights").symlink_to(self.folder / "weights")
            began = time.time()
            gang = Gang(folder, 1, way, [self.python, self.device, self.size], WORKER)
            try:
                gang.stepped()
                if way == ways[0]:
                    yield Row("first start, cold", "executed", phases(gang, began))
                if way == "Fork":
                    gang.templates()
                time.sleep(SETTLED_SECONDS)
                made = [restarted(gang) for _ in range(restarts + 1)][1:]  # The first one fills caches.
                forked, _, went_on, _ = gang.started()
            finally:
                gang.end()
            process = "forked" if forked else "kept" if went_on else "executed"
            yield Row(way, process, {name: statistics.median(one[name] for one in made) for name in made[0]})


def answer(process: subprocess.Popen[str], question: str = "") -> dict[str, Any]:
    """The next line of a program, after this one is written to it."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the program has no pipes")
    if question:
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def restarted(gang: Gang) -> dict[str, float]:
    """Ask for a restart; the seconds of each phase."""
    began = time.time()
    GangStore(StateDirectory(gang.state).gang(NAME)).update_spec(lambda old: changed(old, restart_token=str(began)))
    gang.attempt += 1
    gang.stepped()
    time.sleep(SETTLED_SECONDS)
    return phases(gang, began)


def phases(gang: Gang, began: float) -> dict[str, float]:
    """The seconds of each phase of the attempt, their total, and the second step."""
    moments = gang.steps.moments(gang.attempt)
    ends = [began, *(moments[name] for name in PHASES.values())]
    taken = dict(zip(PHASES, (end - start for start, end in itertools.pairwise(ends)), strict=True))
    return taken | {"total": moments["step"] - began, "next": moments["again"] - moments["step"]}


def write(figures: Figures, command: str) -> None:
    """Write the table into the docs."""
    before, _, rest = DOCS.read_text().partition(BEGIN)
    told = f"`{command}` on {time.strftime('%Y-%m-%d')}:"
    DOCS.write_text(f"{before}{BEGIN}\n{told}\n\n```\n{figures}\n```\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    flags.add_argument("--size", choices=list(SIZES), help="of the model (default: 1.3b; small on a CPU)")
    flags.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    flags.add_argument("--restarts", type=int, default=3, help="measured restarts of each way (default: 3)")
    flags.add_argument("--python", default=sys.executable, help="interpreter with PyTorch (default: this one)")
    flags.add_argument("-o", "--output", choices=["table", "json"], default="table")
    flags.add_argument("--write", action="store_true", help=f"write the table into {DOCS.name}")
    options = flags.parse_args()
    size = options.size or ("1.3b" if options.device == "cuda" else "small")
    with tempfile.TemporaryDirectory(prefix="gangctl-bench-") as folder:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "CUDA_CACHE_PATH": f"{folder}/cuda"}
        bench = Bench(options.python, options.device, size, Path(folder))
        (device,) = bench.answers("weights")
        rows = []
        for row in bench.rows(options.ways, options.restarts):
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
        figures = Figures(
            device, size, rows, bench.memory(), bench.answers("fork"), list(bench.checks()), os.getloadavg()[0]
        )
    print(json.dumps(asdict(figures)) if options.output == "json" else figures)
    if options.write:
        write(figures, f"python -m bench.gpu {' '.join(sys.argv[1:])}".strip())


if __name__ == "__main__":
    main()
