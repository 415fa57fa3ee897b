"""Place gangs by a strategy, and count what the same faults cost there. Pure.

The rule, for each pod in turn, among the hosts on which it may be and has room::

    Pack     where most of its gang is, domain before host; then the host that has least left
    Spread   where least of its service is, or else of its gang, domain before host; then the host that has most left

A fault of a whole host or domain takes all pods there, one of a device takes one of them in turn. A gang that loses a
pod stops as a whole. Placements stay as they are: a pod that was lost comes back to where it was.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

Amounts = Mapping[str, Decimal]
"""Resource -> how much of it. A device's has a domain in its name, and each profile of MIG is a resource of its own."""


class Strategy(StrEnum):
    """As in ``spec.placement``."""

    PACK = "Pack"
    SPREAD = "Spread"


@dataclass(frozen=True, slots=True)
class Host:
    """A node."""

    name: str
    domain: str
    room: Amounts
    """What the pods of gangs may use of it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A pod of a gang."""

    name: str
    gang: str
    needs: Amounts
    service: str = ""
    """The group of gangs that serve together; empty if it has none."""
    hosts: frozenset[str] | None = None
    """Where it may be; None = anywhere."""

    @property
    def kin(self) -> str:
        """Those from which Spread keeps it apart."""
        return self.service or self.gang

    @property
    def devices(self) -> int:
        return int(sum(amount for name, amount in self.needs.items() if is_device(name)))


@dataclass(frozen=True, slots=True)
class HostFault:
    """A fault of hosts at one moment."""

    hosts: frozenset[str]
    whole: bool
    """Whether it takes all pods there, or one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What faults cost."""

    stops: int
    """Restarts of gangs."""
    pods: int
    """Pods that were lost."""
    several: int
    """Stops in which a gang lost several pods at once."""
    outages: int
    """Faults that stopped all gangs of a service that has several."""
    device_seconds: float
    """Devices of the stopped gangs, times the seconds that they were stopped."""


def is_device(resource: str) -> bool:
    """Return whether it is an extended resource."""
    return "/" in resource


@dataclass(slots=True)
class Board:
    """Hosts, and the pods on them."""

    hosts: Sequence[Host]
    placed: dict[str, tuple[Unit, Host]] = field(default_factory=dict)
    """By the name of the pod."""
    _used: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By host and resource."""
    _near: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By gang or service: pods by host and by domain."""

    def free(self, host: Host, resource: str) -> Decimal:
        """How much of it is left."""
        return host.room.get(resource, Decimal(0)) - self._used[host.name][resource]

    def place(self, units: Iterable[Unit], strategy: Strategy) -> tuple[Unit, ...]:
        """Place pods one after the other; returns those that have no room."""
        left: list[Unit] = []
        for unit in units:
            if fitting := [host for host in self.hosts if self._fits(unit, host)]:
                self.put(unit, min(fitting, key=lambda host: self._order(unit, host, strategy)))
            else:
                left.append(unit)
        return tuple(left)

    def put(self, unit: Unit, host: Host) -> None:
        """Put a pod on a host, whatever room that has."""
        self.placed[unit.name] = unit, host
        self._count(unit, host, 1)

    def remove(self, name: str) -> None:
        """Take a pod away."""
        self._count(*self.placed.pop(name), -1)

    def stranded(self, resource: str, size: int) -> int:
        """How much is left in parts that are too small for a pod of this size."""
        return sum(max(0, int(self.free(host, resource))) % size for host in self.hosts)

    def _fits(self, unit: Unit, host: Host) -> bool:
        if unit.hosts is not None and host.name not in unit.hosts:
            return False
        return all(self.free(host, name) >= amount for name, amount in unit.needs.items())

    def _order(self, unit: Unit, host: Host, strategy: Strategy) -> tuple[Decimal | int | str, ...]:
        scarce = next(filter(is_device, unit.needs), "cpu")
        near = self._near[unit.gang if strategy is Strategy.PACK else unit.kin]
        sign = -1 if strategy is Strategy.PACK else 1
        key = sign * near[f"domain {host.domain}"], sign * near[f"host {host.name}"]
        return *key, -sign * self.free(host, scarce), host.name

    def _count(self, unit: Unit, host: Host, number: int) -> None:
        for name, amount in unit.needs.items():
            self._used[host.name][name] += number * amount  # type: ignore[assignment]  # Of decimals, it is one.
        for kin in {unit.gang, unit.kin}:
            self._near[kin][f"domain {host.domain}"] += number
            self._near[kin][f"host {host.name}"] += number


def replay(board: Board, faults: Sequence[HostFault]) -> list[list[str]]:
    """For each fault the gangs of the pods that it takes, if the pods are where they are now."""
    there = defaultdict[str, list[Unit]](list)
    for unit, host in board.placed.values():
        there[host.name].append(unit)
    taken = []
    for number, fault in enumerate(faults):
        units = sorted((unit for host in fault.hosts for unit in there[host]), key=lambda unit: unit.name)
        taken.append([unit.gang for unit in (units if fault.whole or not units else [units[number % len(units)]])])
    return taken


def cost(taken: Iterable[Sequence[str]], units: Iterable[Unit], seconds: Mapping[str, float]) -> Cost:
    """Count what faults cost.

    Args:
        taken: For each fault the gangs of the pods that it took, a gang as often as it lost a pod.
        units: All pods.
        seconds: By gang, how long a stop takes.
    """
    devices, services = Counter[str](), defaultdict[str, set[str]](set)
    for unit in units:
        devices[unit.gang] += unit.devices
        if unit.service:
            services[unit.service].add(unit.gang)
    found = [Counter(gangs) for gangs in taken]
    return Cost(
        stops=sum(map(len, found)),
        pods=sum(map(Counter.total, found)),
        several=sum(number > 1 for pods in found for number in pods.values()),
        outages=sum(len(gangs) > 1 and gangs <= pods.keys() for pods in found for gangs in services.values()),
        device_seconds=sum(devices[gang] * seconds[gang] for pods in found for gang in pods),
    )
