"""Pack gangs or spread them: a simulated year of arrivals and of published faults, by strategy and workload class.

    python -m bench.placement        what docs/benchmarks.md has

Faults are those of "The Llama 3 Herd of Models" (Meta, 2024, table 5): 419 unexpected interruptions of a job on 16,384
GPUs in 54 days. 268 of a GPU and 53 of a host, its NIC, power, disks or unplanned maintenance took one of 2,048 nodes
with 8 GPUs; 35 of a switch or cable a rack of two. The other 63 (software, NCCL's watchdog, dependencies) hit a job
wherever it is, and are left out. That is a fault in 345 node-days, and one in 1,580 rack-days.

The cluster has 64 nodes with 8 GPUs, two to a rack. Training gangs ask for 1 to 64 GPUs in pods of 1, 2, 4 or 8, come
at random and train for a day on average; serving groups have three gangs of one or two pods with 2 GPUs, and stay for
ten days. A gang has all its pods or waits; those behind it may go first. A fault stops a gang for two minutes. Both
strategies get the same arrivals and faults: the seeds are fixed. The strategies are those of `gangctl placement`.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from gangctl.annexes.placement.strategies import Board, Cost, Host, HostFault, Strategy, Unit, cost, replay

GPU: Final = "nvidia.com/gpu"
NODES: Final = 64
GPUS: Final = 8
IN_RACK: Final = 2
NODE_DAYS: Final = 16_384 / 8 * 54
NODE_FAULTS: Final = (268 + 53) / NODE_DAYS / 24
"""An hour."""
RACK_FAULTS: Final = 35 / (NODE_DAYS / IN_RACK) / 24
STOP_SECONDS: Final = 120.0
LARGE: Final = 8
"""GPUs of a pod that needs a whole node."""


@dataclass(frozen=True)
class Workload:
    """A class of gangs."""

    name: str
    arrivals: float
    """An hour."""
    hours: float
    """How long one stays, on average."""
    shapes: Sequence[tuple[int, int]]
    """Pods and GPUs of each, drawn."""
    replicas: int = 1
    """Gangs that serve together."""


CLASSES: Final = (
    Workload("training", 0.95, 24, ((1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4), (4, 4), (1, 8), (4, 8), (8, 8))),
    Workload("serving", 0.2, 240, ((1, 2), (2, 2)), replicas=3),
)


@dataclass
class Year:
    """What happened, with one strategy and one class."""

    costs: list[Cost]
    waits: list[int]
    """Hours that gangs with pods of whole nodes waited."""
    stranded: int = 0
    """GPU hours that were free on nodes which a pod of a whole node couldn't use."""
    free: int = 0
    gang_hours: int = 0
    hours: int = 0

    def __str__(self) -> str:
        stops, several, outages = (
            sum(getattr(one, name) for one in self.costs) for name in ("stops", "several", "outages")
        )
        lost = sum(one.device_seconds for one in self.costs) / 3600
        used = self.hours * NODES * GPUS - self.free
        cells = (
            f"{used / (used + self.free):.0%}",
            f"{self.stranded / max(self.free, 1):.0%}",
            f"{statistics.mean(self.waits):.1f} h" if self.waits else "-",
            f"{stops / (self.gang_hours / 24 / 365):.1f}",
            f"{several / max(stops, 1):.0%}",
            f"{lost / used * 10_000:.2f}",
            str(outages),
        )
        return " | ".join(cells)


def year(work: Workload, strategy: Strategy, days: int) -> Year:
    """Simulate it hour by hour."""
    comes, fails = random.Random(1), random.Random(2)
    hosts = [Host(f"n{at:02}", f"r{at // IN_RACK:02}", {GPU: Decimal(GPUS)}) for at in range(NODES)]
    board, found = Board(hosts), Year([], [])
    queue: list[tuple[int, int, list[Unit]]] = []
    ends: dict[int, list[str]] = {}
    for hour in range(days * 24):
        for name in ends.pop(hour, ()):
            board.remove(name)
        queue += arrived(work, comes, hour)
        for one in list(queue):
            came, stays, units = one
            if board.place(units, strategy):
                for unit in units:
                    if unit.name in board.placed:
                        board.remove(unit.name)
                continue
            queue.remove(one)
            ends.setdefault(hour + stays, []).extend(unit.name for unit in units)
            if units[0].devices == LARGE:
                found.waits.append(hour - came)
        units = [unit for unit, _ in board.placed.values()]
        gangs = {unit.gang for unit in units}
        found.hours += 1
        found.gang_hours += len(gangs)
        found.free += sum(int(board.free(host, GPU)) for host in hosts)
        found.stranded += board.stranded(GPU, LARGE)
        if faults := [*drawn(fails, hosts)]:
            found.costs.append(cost(replay(board, faults), units, dict.fromkeys(gangs, STOP_SECONDS)))
    return found


def arrived(work: Workload, chance: random.Random, hour: int) -> list[tuple[int, int, list[Unit]]]:
    """The gangs of an hour, with the hours that they stay. The draws don't depend on what is placed."""
    found = []
    left = chance.expovariate(work.arrivals)
    while left < 1:
        pods, gpus = chance.choice(work.shapes)
        stays = 1 + int(chance.expovariate(1 / work.hours))
        group = f"{hour}-{left:.9f}"
        for replica in range(work.replicas):
            gang = f"{group}-{replica}"
            service = group if work.replicas > 1 else ""
            units = [Unit(f"{gang}-{pod}", gang, {GPU: Decimal(gpus)}, service) for pod in range(pods)]
            found.append((hour, stays, units))
        left += chance.expovariate(work.arrivals)
    return found


def drawn(chance: random.Random, hosts: Sequence[Host]) -> list[HostFault]:
    """The faults of an hour: those of a GPU or a host take the whole node, which is repaired."""
    faults = [HostFault(frozenset({host.name}), whole=True) for host in hosts if chance.random() < NODE_FAULTS]
    racks = [rack for rack in sorted({host.domain for host in hosts}) if chance.random() < RACK_FAULTS]
    there = (frozenset(host.name for host in hosts if host.domain == rack) for rack in racks)
    return [*faults, *(HostFault(names, whole=True) for names in there)]


def main() -> None:
    """Print a row for each class and strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=365, help="simulated days (default: %(default)s)")
    days: int = parser.parse_args().days
    print(
        "class | strategy | GPUs in use | free GPUs stranded | wait of pods with 8 GPUs | stops a gang-year | "
        "of several pods | GPU hours lost of 10,000 | outages of a group"
    )
    for work in CLASSES:
        for strategy in Strategy:
            print(work.name, strategy, year(work, strategy, days), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
