"""What a template costs the training beside it: steps before, while and after it is made, in one run.

    python -m bench.template                          1 member, 4 rounds
    python -m bench.template --modules torch --python /usr/bin/python3

One gang under `gangctl run` with start type Fork. Its script imports the modules and makes steps of matrix products, of
some 10 ms each. In each round it trains for a while without a template, reports its first step (so one is made), and
trains on after the template is ready. Then template and worker are killed, and the next round begins. So the periods
alternate, and the rounds show how much of a difference is noise.

Before the first round, an interpreter of its own imports the modules. A template should be ready within twice that time
where processors are idle.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.warm_start import Gang

READY = re.compile(r"the template is ready pid=(\d+) mebibytes=(\d+)")
TICKS = os.sysconf("SC_CLK_TCK")
WORKER = Path(__file__).with_name("busy_worker.py")


def ready(gang: Gang, already: int) -> list[tuple[int, int]]:
    """Pid and MiB of each member's newest template, when each has made one more than ``already``."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        found = [READY.findall((gang.pod(member) / "supervisor.log").read_text()) for member in range(gang.steps.ranks)]
        if all(len(one) > already for one in found):
            return [(int(pid), int(size)) for pid, size in (one[-1] for one in found)]
        time.sleep(0.02)
    raise TimeoutError("no template")


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def row(period: str, steps: list[tuple[float, float]], begin: float, end: float) -> str:
    """Count, median and 99th percentile of the steps of a period."""
    taken = sorted(1000 * seconds for at, seconds in steps if begin <= at < end)
    return f"{period:>9} {len(taken):>6} {statistics.median(taken):>8.2f} {taken[int(0.99 * len(taken))]:>8.2f}"


def imports(python: str, modules: list[str]) -> float:
    """Seconds that the imports take, the files in the page cache: the least of three."""
    code = f"import time; began = time.monotonic(); import {', '.join(modules)}; print(time.monotonic() - began)"
    return min(float(subprocess.check_output([python, "-c", code], text=True).split()[-1]) for _ in range(3))


def measured(gang: Gang, at: int, seconds: float, imported: float) -> None:
    """Print one round. ``imported``: the seconds that the imports take alone."""
    gang.stepped()
    began = time.time()
    time.sleep(seconds)  # The period that is measured.
    (gang.steps.folder / f"go-{gang.attempt}").write_text("")
    told = time.time()
    templates = ready(gang, at)
    made = time.time()
    time.sleep(seconds)  # As above.
    end = time.time()
    steps = []
    for rank in range(gang.steps.ranks):
        lines = (gang.steps.folder / f"steps-{gang.attempt}-{rank}").read_text().splitlines()[:-1]
        steps += [(float(one), float(other)) for one, other in map(str.split, lines)]
    for period, since, until in (("before", began, told), ("making", told, made), ("after", made, end)):
        print(f"{at + 1:>5} {row(period, steps, since, until)}")
    size, cpu = max(size for _, size in templates), max(cpu_seconds(pid) for pid, _ in templates)
    load = os.getloadavg()[0]
    print(
        f"      template: {size} MiB, {cpu:.1f} s of CPU time, made in {made - told:.1f} s, "
        f"{(made - told) / imported:.1f} times the imports; load {load:.1f}",
        flush=True,
    )
    for pid, _ in templates:
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the periods before and after")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the workers")
    parser.add_argument("--modules", nargs="*", default=["jax", "jax.numpy"])
    given = parser.parse_args()
    imported = imports(given.python, given.modules)
    print(f"imports alone: {imported:.1f} s; load {os.getloadavg()[0]:.1f}")
    print("round    period  steps   median      p99  (milliseconds)")
    with tempfile.TemporaryDirectory() as name:
        gang = Gang(Path(name), given.members, "Fork", [given.python, *given.modules], WORKER)
        try:
            for at in range(given.rounds):
                measured(gang, at, given.seconds, imported)
                if at + 1 < given.rounds:
                    gang.restart(0)
        finally:
            gang.end()


if __name__ == "__main__":
    main()
