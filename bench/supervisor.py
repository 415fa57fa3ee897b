"""Start and memory of a supervisor: the archive, which Python runs, beside the static executable.

    python -m bench.supervisor EXECUTABLE [--rounds 20] [--python /usr/bin/python3 ...]

One supervisor after the other, in turns, so that other work on the machine hits all alike. Medians of the milliseconds
from just before its exec to its first line, and of the CPU time up to its connection to the sidecar, which other work
changes little; memory in MB when it waits, and after ten attempts and 300 checkpoints: resident, and its own part.
`python -c 'from e2e.images.build import Images; print(Images().supervisor.executable())'` builds EXECUTABLE, as root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gangsidecar import install
from gangsidecar.wire import SUPERVISOR_ARCHIVE, SUPERVISOR_PROGRAM, Checkpoint, Directive, Phase, Process, Run, Verb
from tests.sidecar.supervisor.supervised import Sidecar

ATTEMPTS = 10
CHECKPOINTS = 300


class Figures(NamedTuple):
    """Of one supervisor: milliseconds, and MB."""

    first_line: float
    cpu: float
    idle: float
    idle_own: float
    worked: float
    worked_own: float


def memory(pid: int) -> tuple[float, float]:
    """Resident memory of a process, and what of it no file backs, in MB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, own = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
    return resident, own


def directive(verb: Verb, attempt: int) -> Directive:
    """What the controller says."""
    return Directive(gang="g", pod="p", attempt=attempt, verb=verb, grace_ms=1000)


def measured(command: list[str], folder: Path) -> Figures:
    """Lead one supervisor through a session."""
    sidecar = Sidecar(folder / "socket")
    flags = [f"--socket={folder / 'socket'}", f"--state={folder / 'state'}", "--gang=g", "--member=m", "--address=1"]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*command, "run", *flags, "--pod=p", "--", "sleep", "1000"], stderr=subprocess.PIPE, env={"PATH": os.defpath}
    )
    assert process.stderr is not None
    os.read(process.stderr.fileno(), 1)
    first_line = time.perf_counter() - begin
    sidecar.accept()
    cpu = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e6
    sidecar.until(lambda report: report.phase is Phase.IDLE)
    idle = memory(process.pid)
    for attempt in range(1, ATTEMPTS + 1):
        sidecar.send(directive(Verb.HOLD, attempt))
        ready = sidecar.until(lambda told: told.phase is Phase.READY and told.attempt == attempt)  # noqa: B023
        run = Run(ready.session, (Process(local_rank=0, rank=0, env=()),))
        sidecar.send(replace(directive(Verb.RUN, attempt), run=run))
        sidecar.until(lambda told: told.phase is Phase.RUNNING and told.attempt == attempt)  # noqa: B023
    sidecar.send(*(Checkpoint("ram", step, 0, ATTEMPTS, f"/dev/shm/{step}") for step in range(CHECKPOINTS)))
    sidecar.until(lambda told: told.checkpoints and told.checkpoints[0].step == CHECKPOINTS - 1)
    worked = memory(process.pid)
    sidecar.send(directive(Verb.FINISH, ATTEMPTS))
    process.communicate()
    sidecar.close()
    (folder / "state").unlink()
    return Figures(1e3 * first_line, cpu, *idle, *worked)


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executable", type=Path, help="the static supervisor")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--python", action="append", help="interpreter of the archive; may be repeated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        install.build_archive(folder / SUPERVISOR_ARCHIVE)
        shutil.copy(options.executable, folder / SUPERVISOR_PROGRAM)
        kinds = {"executable": [str(folder / SUPERVISOR_PROGRAM)]}
        for python in options.python or [sys.executable]:
            kinds[f"archive, {python}"] = [python, "-IS", str(folder / SUPERVISOR_ARCHIVE)]
        found: dict[str, list[Figures]] = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind, command in kinds.items():
                found[kind].append(measured(command, folder))
    print("first line (least)  CPU time    idle   (own)  worked   (own)")
    for kind, figures in found.items():
        first, *middle = (statistics.median(one) for one in zip(*figures, strict=True))
        least = min(one.first_line for one in figures)
        print(
            "{:>10.0f} {:>7.0f} {:>9.0f} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f}".format(first, least, *middle), f"  {kind}"
        )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
