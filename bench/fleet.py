"""Months of faults in minutes: what restarts cost a large gang, by the way that it restarts.

    python -m bench.fleet                        16,384 devices for 54 days: the table that docs/benchmarks.md has
    python -m bench.fleet --picture fleet.svg    and goodput by the rate of faults and by the checkpoint interval
    python -m bench.fleet --away 3600            with no node to spare: one that is lost or sick is back after an hour

The faults are those of Llama 3 (arXiv:2407.21783, table 5: 419 unexpected interruptions in 54 days), in an order and at
times that the seed draws. gangctl's rows run the real core in virtual time: ``decide()`` sees each fault as the cluster
shows it, and simulated pods and supervisors do what it decides, in the times of ``SECONDS``, which are measured or
cited. JobSet's rows recreate all pods, or restart all containers and make one new pod where the fault was the pod's;
a sick device counts as known to them, which it is not. Queues, image pulls and nodes that are not there cost nothing
here, which favours those who make new pods. Checkpoints cost no time. In memory they count as kept by other nodes.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from gangctl.api.status import GangPhase
from gangctl.core.facts.world import Device
from gangctl.core.policy.pods import CreatePod
from gangsidecar.wire import Corruption, End, Phase
from tests.core.fleet import Fleet

MEMBERS, DAYS, DAY = 2_048, 54.0, 86_400.0
TURNS = 1_000
"""So many decisions at most until a gang runs again."""


class Kind(Enum):
    """How a fault shows itself."""

    PROCESS = "a process ends"
    DEVICE = "a process ends, and its device is unhealthy"
    NODE = "a node is lost"
    HANG = "all ranks but one are ended by the watchdog of their collective"
    CORRUPTION = "a framework finds that a rank computes wrongly"


CAUSES: Final = (
    ("faulty GPU", 148, Kind.DEVICE),
    ("HBM3 memory", 72, Kind.DEVICE),
    ("software", 54, Kind.PROCESS),
    ("network switch or cable", 35, Kind.PROCESS),
    ("host maintenance", 32, Kind.NODE),
    ("GPU SRAM", 19, Kind.DEVICE),
    ("GPU system processor", 17, Kind.DEVICE),
    ("network card", 7, Kind.NODE),
    ("NCCL watchdog", 7, Kind.HANG),
    ("silent data corruption", 6, Kind.CORRUPTION),
    ("thermal interface or sensor", 6, Kind.DEVICE),
    ("SSD", 3, Kind.NODE),
    ("power supply", 3, Kind.NODE),
    ("chassis", 2, Kind.NODE),
    ("IO expansion board", 2, Kind.NODE),
    ("dependency", 2, Kind.PROCESS),
    ("CPU", 2, Kind.NODE),
    ("system memory", 2, Kind.NODE),
)
A_DAY: Final = 419 / 54
"""Faults of 2,048 nodes."""
RATES: Final = {
    "RSC-2": 2.34 * 2.048 / A_DAY,
    "Llama 3": 1.0,
    "RSC-1": 6.50 * 2.048 / A_DAY,
    "x 4": 4.0,
    "x 8": 8.0,
    "x 16": 16.0,
}
"""The same in multiples. RSC-1 and RSC-2 are clusters of Meta: failures in a thousand node-days (arXiv:2410.21680)."""

SECONDS: Final = {
    Kind.PROCESS: 0.1,  # Until it is seen. An end is reported at once (python bench/restart.py).
    Kind.DEVICE: 0.1,
    Kind.NODE: 46.0,  # Kubernetes marks a silent node after 40 s, and looks each 5 s.
    Kind.HANG: 600.0,  # PyTorch's default for NCCL: init_process_group(timeout=10 min).
    Kind.CORRUPTION: 0.1,
    "tell all to stop, and hear that they have": 1.2,  # 9 to 12 s for 10,000, both ways (python -m bench.size).
    "tell all to start": 1.2,
    "a new pod": 3.3,  # python -m bench.cluster, 4 pods
    "start, executed": 4.4,  # python -m bench.first_step: from the fault to the first step of 4 ranks.
    "start, forked": 0.33,
    "start in restarted containers": 9.6,
    "start in new pods": 11.0,
    "schedule 2,048 pods": 7.6,  # 270 pods a second: the threshold of kube-scheduler's SchedulingBasic, 5,000 nodes.
    "leave a lost node": 300.0,  # Kubernetes' default tolerationSeconds for node.kubernetes.io/unreachable.
    "build process groups": 30.0,  # Over 10,000 GPUs, optimized (MegaScale, arXiv:2402.15627).
    "load from storage": 33.0,  # 4 GB for each GPU at 2 TB/s (Llama 3).
    "load from memory": 1.0,  # 4 GB by a card of 400 Gb/s, and as long again.
}
LEAVES: Final = frozenset({Kind.NODE, Kind.DEVICE})
"""A pod has to go to another node."""
STORED_EVERY, IN_MEMORY_EVERY = 600.0, 30.0
"""Seconds between checkpoints."""


class Fault(NamedTuple):
    """A fault, and when it happens in seconds from the start."""

    at: float
    kind: Kind


class Policy(NamedTuple):
    """A way to restart."""

    name: str
    start: str
    is_gangctl: bool = True
    spares: int = 0
    memory: bool = False
    elastic: bool = False
    """It goes on with fewer members while others are away, from seven in eight on."""

    @property
    def load(self) -> float:
        """Seconds until all have loaded a checkpoint, after they have started and found each other."""
        return SECONDS["build process groups"] + SECONDS["load from memory" if self.memory else "load from storage"]


POLICIES: Final = (
    Policy("JobSet, all pods recreated", "start in new pods", is_gangctl=False),
    Policy("JobSet, containers in place", "start in restarted containers", is_gangctl=False),
    Policy("gangctl, Exec", "start, executed"),
    Policy("gangctl, Fork", "start, forked"),
    Policy("gangctl, Fork, elastic", "start, forked", elastic=True),
    Policy("gangctl, Fork, 16 spares", "start, forked", spares=16),
    Policy("gangctl, Fork, 16 spares, in memory", "start, forked", spares=16, memory=True),
)


@dataclass
class Loss:
    """What one policy has lost, in seconds."""

    down: float = 0.0
    again: float = 0.0
    """Training that was done again."""
    thin: float = 0.0
    """Training that members who were away would have done."""
    pods: int = 0
    outages: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(list))

    def goodput(self, seconds: float) -> float:
        """The share of the time that made progress which lasted."""
        return max(0.0, 1 - (self.down + self.again + self.thin) / seconds)


def faults(seed: int, a_day: float, days: float) -> Iterator[Fault]:
    """Draw the faults: their times are a Poisson process, their kinds as in the table."""
    chance = random.Random(seed)
    kinds, weights = [kind for _, _, kind in CAUSES], [count for _, count, _ in CAUSES]
    at = chance.expovariate(a_day / DAY)
    while at < days * DAY:
        yield Fault(at, chance.choices(kinds, weights)[0])
        at += chance.expovariate(a_day / DAY)


class Pods(Fleet):
    """Pods that end when they are deleted, unless their node is lost."""

    def delete(self, uid: str) -> None:
        """The kubelet, if there is one, ends it and says so."""
        if uid in self.pods:
            ends = self.pods[uid].node not in self.lost_nodes
            self.pods[uid] = replace(self.pods[uid], deleting=True, terminated=ends)
            if uid in self.heard:
                self.heard[uid] = replace(self.heard[uid], connected=False)


class Gang:
    """A gang under gangctl: the real core, and pods and supervisors that do what it decides."""

    def __init__(self, policy: Policy, members: int, seed: int, away: float) -> None:
        """``away``: seconds until there is another node instead of one that is lost or sick."""
        source = {"type": "Directory", "directory": "/c", "layout": "TorchDCP"}
        tier: dict[str, Any] = {"name": "store", "scope": "Shared", "source": source, "reshardable": policy.elastic}
        role = {"replicas": members, "spares": policy.spares}
        role |= {"minReplicas": members * 7 // 8} if policy.elastic else {}
        recovery = {"replacementTimeoutSeconds": 86_400}
        spec = {"roles": [role], "checkpoint": {"tiers": [tier]}, "recovery": recovery}
        self._fleet = Pods(spec)
        self._fleet.starts = lambda _member: False
        self._policy, self._chance = policy, random.Random(seed)
        self._made: list[tuple[float, str]] = []
        """When a new pod starts, and which."""
        self._nodes = 0
        self._members, self._away = members, 0.0
        self._run_again()
        self._began = self._fleet.now
        self._longest = away

    @property
    def share(self) -> float:
        """The part of the members that train."""
        return (
            sum(one.connected and one.report.phase is Phase.RUNNING for one in self._fleet.heard.values())
            / self._members
        )

    def grow(self, until: float, saved: Callable[[float], int]) -> tuple[float, float, int] | None:
        """Train until then, unless the gang stops to grow: when, seconds until it trains, and the step that it loads.

        ``saved``: how many checkpoints there are by then.
        """
        fleet, due = self._fleet, self._fleet.now
        while self.share < 1 and (due := min([due, *(at for at, _ in self._made)])) < self._began + until:
            fleet.now = round(max(fleet.now, due) + 0.01, 3)
            fleet.step = saved(fleet.now - self._began)
            self._start_pods()
            fleet.obey()
            plan = fleet.turn()
            if fleet.status.phase is not GangPhase.RUNNING:
                at = fleet.now
                self._run_again()
                point = fleet.status.restore_point
                return at - self._began, fleet.now - at, 0 if point is None else point.step
            due = math.inf if plan.requeue_after is None else fleet.now + plan.requeue_after
        return None

    def strike(self, fault: Fault, saved: int) -> tuple[float, int, int]:
        """A fault after so many checkpoints. Returns seconds until it trains, the step that it loads, and new pods."""
        fleet = self._fleet
        fleet.now = round(self._began + fault.at, 3)  # As exact as a status is.
        fleet.step = saved
        for uid in [uid for uid, pod in fleet.pods.items() if pod.deleting]:
            Fleet.delete(fleet, uid)
        self._start_pods()
        fleet.obey()
        fleet.turn()
        self._show(fault.kind)
        self._away = self._longest if fault.kind in LEAVES else 0.0
        made = self._run_again()
        point = fleet.status.restore_point
        return fleet.now - self._began - fault.at, 0 if point is None else point.step, made

    def _show(self, kind: Kind) -> None:
        """What the cluster and the supervisor of one member show."""
        fleet, attempt = self._fleet, self._fleet.status.attempt
        running = sorted(one.report.member for one in fleet.heard.values() if one.report.phase is Phase.RUNNING)
        member = self._chance.choice(running)
        fleet.now = round(fleet.now + SECONDS[kind], 3)
        uid, pod = next((uid, pod) for uid, pod in fleet.pods.items() if pod.member == member)
        self._nodes += 1
        fleet.node = f"node-{{}}-{self._nodes}"
        match kind:
            case Kind.NODE:
                fleet.lost_nodes = {pod.node: fleet.now}
                fleet.heard[uid] = replace(fleet.heard[uid], connected=False)
                fleet.speaks = lambda name: name != member or uid not in fleet.pods or fleet.pods[uid].deleting
            case Kind.CORRUPTION:
                incarnation = fleet.heard[uid].report.incarnation
                fleet.report([member], corruption=Corruption(attempt, 0, max(1, fleet.step), "loss", incarnation))
            case Kind.HANG:
                end = End(attempt, 0, 0, 0, exit_code=None, signal=signal.SIGABRT)
                fleet.report([one for one in running if one != member], phase=Phase.READY, ends=(end,))
            case _:
                end = End(attempt, 0, 0, 0, exit_code=1, signal=None)
                fleet.report([member], phase=Phase.READY, ends=(end,))
                if kind is Kind.DEVICE:
                    fleet.pod([member], devices=(Device("nvidia.com/gpu", "gpu-0", "Unhealthy"),))

    def _run_again(self) -> int:
        """Decide and obey until all train; returns how many pods are made."""
        fleet, made = self._fleet, 0
        for _ in range(TURNS):
            before = fleet.status
            plan = fleet.turn()
            if fleet.status.phase is GangPhase.HELD:
                raise RuntimeError(f"the gang is held: {fleet.status.message}")
            created = sum(isinstance(action, CreatePod) for action in plan.actions)
            made += created
            for uid in list(fleet.pods)[-created:] if created else ():
                self._made.append((fleet.now + SECONDS["a new pod"] + self._away, uid))
                if self._away:
                    fleet.pods[uid] = replace(fleet.pods[uid], node="", scheduled_at=None)
            if fleet.status.attempt > before.attempt:
                fleet.now = round(fleet.now + SECONDS["tell all to stop, and hear that they have"], 3)
            elif before.phase is not GangPhase.RUNNING and fleet.status.phase is GangPhase.RUNNING:
                fleet.now = round(
                    fleet.now + SECONDS["tell all to start"] + SECONDS[self._policy.start] + self._policy.load, 3
                )
                fleet.obey()
                return made
            elif plan.status is None and not plan.actions:
                waits = [plan.requeue_after or 60.0, *(at - fleet.now for at, _ in self._made)]
                fleet.now = round(fleet.now + max(0.01, min(waits)), 3)
            self._start_pods()
            fleet.obey()
        raise RuntimeError(f"the gang doesn't run again: {fleet.status.phase} {fleet.status.message}")

    def _start_pods(self) -> None:
        fleet = self._fleet
        due, self._made = ([one for one in self._made if (one[0] <= fleet.now) is is_due] for is_due in (True, False))
        for _, uid in due:
            if uid in fleet.pods:
                pod, now = fleet.pods[uid], fleet.now
                node = pod.node or fleet.node.format(pod.member)
                fleet.pods[uid] = replace(pod, node=node, scheduled_at=pod.scheduled_at or now, started_at=now)


def of_gangctl(policy: Policy, found: Sequence[Fault], members: int, seed: int, away: float) -> Loss:
    """Let the core restart a gang after each fault. One that comes before it trains again changes nothing."""
    gang, loss, every = Gang(policy, members, seed, away), Loss(), IN_MEMORY_EVERY if policy.memory else STORED_EVERY
    since, kept, share = 0.0, 0.0, 1.0

    def trained(at: float) -> float:
        return kept + (at - since) * share

    def saved(at: float) -> int:
        return int(trained(at) // every)

    def stopped(at: float, seconds: float, step: int) -> None:
        nonlocal since, kept, share
        loss.down += seconds
        loss.again += trained(at) - step * every
        loss.thin += (at - since) * (1 - share)
        since, kept, share = at + seconds, step * every, gang.share

    for fault in found:
        while fault.at > since and (grown := gang.grow(fault.at, saved)) is not None:
            stopped(*grown)
        if fault.at < since:
            continue
        seconds, step, made = gang.strike(fault, saved(fault.at))
        stopped(fault.at, seconds, step)
        loss.pods += made
        loss.outages[fault.kind].append(seconds)
    return loss


def by_outages(found: Sequence[Fault], outages: Mapping[Kind, Sequence[float]], every: float, pods: int = 1) -> Loss:
    """Restart from the newest checkpoint after each fault, in times that are known for its kind."""
    loss, since, kept, turns = Loss(), 0.0, 0.0, dict.fromkeys(Kind, 0)
    for fault in found:
        if fault.at < since or not outages.get(fault.kind):
            continue
        known = outages[fault.kind]
        seconds = known[turns[fault.kind] % len(known)]
        turns[fault.kind] += 1
        trained = kept + fault.at - since
        kept, since = trained // every * every, fault.at + seconds
        loss.down += seconds
        loss.again += trained - kept
        loss.pods += pods
        loss.outages[fault.kind].append(seconds)
    return loss


def of_jobset(policy: Policy, away: float) -> dict[Kind, list[float]]:
    """Seconds until training goes on, by the kind of fault."""
    found = {}
    for kind in Kind:
        in_place = policy.start == "start in restarted containers"
        leaves = kind in LEAVES
        seconds = SECONDS[kind] + SECONDS[policy.start] + policy.load
        seconds += SECONDS["leave a lost node"] if kind is Kind.NODE else 0
        if not in_place:
            seconds += SECONDS["schedule 2,048 pods"]
        elif leaves:
            seconds += SECONDS["a new pod"]
        seconds += away if leaves else 0
        found[kind] = [seconds]
    return found


def table(seed: int, days: float, members: int, away: float) -> dict[str, Mapping[Kind, Sequence[float]]]:
    """Print a row for each policy; returns its outages."""
    found = list(faults(seed, A_DAY, days))
    print(
        f"{members:,} members for {days:g} days, {len(found)} faults, seed {seed}; checkpoints each {STORED_EVERY:g} s,"
    )
    print(f"in memory each {IN_MEMORY_EVERY:g} s. Gang-hours; pods that were made; the median outage of each kind (s)")
    heads = " ".join(f"{kind.name.lower():>11}" for kind in Kind)
    print(f"{'':36} {'goodput':>8} {'down':>6} {'again':>6} {'thin':>6} {'pods':>9} {heads}")
    known: dict[str, Mapping[Kind, Sequence[float]]] = {}
    for policy in POLICIES:
        if policy.is_gangctl:
            loss = of_gangctl(policy, found, members, seed, away)
        else:
            loss = by_outages(
                found, of_jobset(policy, away), STORED_EVERY, members if "new pods" in policy.start else 1
            )
        known[policy.name] = loss.outages
        middle = [sorted(loss.outages[kind] or [0.0])[len(loss.outages[kind]) // 2] for kind in Kind]
        print(
            f"{policy.name:36} {loss.goodput(days * DAY):8.2%} {loss.down / 3600:6.1f} {loss.again / 3600:6.1f} "
            f"{loss.thin / 3600:6.1f} {loss.pods:9,} " + " ".join(f"{seconds:11.1f}" for seconds in middle),
            flush=True,
        )
    return known


def picture(path: Path, known: Mapping[str, Mapping[Kind, Sequence[float]]], seed: int, days: float) -> None:
    """Draw goodput by the rate of faults, and by the checkpoint interval, with the outages that the table found."""
    rates = list(RATES.items())
    intervals = [(f"{seconds / 60:g}", seconds) for seconds in (60, 300, 600, 1_800, 3_600)]
    colours = ("#888888", "#444444", "#c96", "#2a7", "#b3a", "#17b", "#71c")
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="440" font-family="sans-serif" font-size="12">',
        "<title>Goodput by the rate of faults and by the checkpoint interval</title>",
        '<rect width="900" height="440" fill="#fff"/>',
    ]
    for left, title, points in ((60, "the rate of faults", rates), (500, "minutes between checkpoints", intervals)):
        parts.append(f'<text x="{left}" y="20">goodput by {title}</text>')
        for at, (label, _) in enumerate(points):
            parts.append(
                f'<text x="{left + at * 330 / (len(points) - 1):.0f}" y="285" text-anchor="middle">{label}</text>'
            )
        for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
            y = 480 - 440 * share
            parts.append(
                f'<path d="M{left} {y:.0f}h330" stroke="#ddd"/><text x="{left - 34}" y="{y + 4:.0f}">{share:.0%}</text>'
            )
        for policy, colour in zip(POLICIES, colours, strict=True):
            line = []
            for at, (_, value) in enumerate(points):
                every = IN_MEMORY_EVERY if policy.memory else (value if points is intervals else STORED_EVERY)
                rate = A_DAY * (value if points is rates else 1)
                share = by_outages(list(faults(seed, rate, days)), known[policy.name], every).goodput(days * DAY)
                line.append(f"{left + at * 330 / (len(points) - 1):.0f},{480 - 440 * max(0.5, share):.1f}")
            parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for at, (policy, colour) in enumerate(zip(POLICIES, colours, strict=True)):
        parts.append(f'<text x="60" y="{310 + 18 * at}" fill="{colour}">{policy.name}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def main() -> None:
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--members", type=int, default=MEMBERS, help="pods of 8 devices; fewer take less time")
    parser.add_argument(
        "--away", type=float, default=0.0, help="seconds until a node replaces one that is lost or sick"
    )
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    began = time.monotonic()
    known = table(options.seed, options.days, options.members, options.away)
    print(f"took {time.monotonic() - began:.0f} s")
    if options.picture is not None:
        picture(options.picture, known, options.seed, options.days)


if __name__ == "__main__":
    main()
