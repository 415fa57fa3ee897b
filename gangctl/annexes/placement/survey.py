"""Survey a cluster: devices that no pod can use, gangs by failure domain, and what faults cost by strategy. Pure.

    stranded = left on nodes that take the pods, in parts smaller than the largest pod that asks for the resource
    history  = faults that gangctl put down to nodes and their devices, as far back as the statuses of the gangs reach
    as Pack, as Spread = the gangs that run now, placed anew on the same nodes, and the same faults again

A pod may be on a node if every filter of the scheduler says so but the room, and affinity between pods, which is what
the strategies decide. A stop takes a gang as long as its recorded ones, or as those of all gangs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from gangctl.annexes.placement.strategies import Board, Cost, Host, HostFault, Strategy, Unit, cost, is_device, replay
from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.names import LABEL_UID
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Strength, default
from gangctl.core.record.incidents import node_of
from gangctl.explain.why.filters import Filter, Neighbours, free_resources, refusals
from gangctl.explain.why.world import Inventory
from gangctl.kubernetes.objects import Node, WholePod
from gangctl.story.incidents import incident_story

TOGETHER_SECONDS: Final = 120.0
"""Faults of one node within this time are one, which several gangs have seen."""
WHOLE: Final = frozenset({Reason.NODE_LOST, Reason.NODE_UNHEALTHY})
"""Faults that take all pods of a node."""
NO_ROOM: Final = frozenset({Filter.NODE_RESOURCES_FIT, Filter.INTER_POD_AFFINITY})
ALONE: Final = Neighbours(frozenset(), ())


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """An extended resource on the nodes that take the pods which ask for it."""

    resource: str
    nodes: int
    total: int
    free: int
    free_elsewhere: int
    """On nodes that are cordoned, tainted or not selected."""
    largest_pod: int
    """What it asks for; 0 if no pod asks."""
    stranded: int
    pods_waiting: int
    """Pods without a node for which enough is free in total, and on no node."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A failure domain with pods of gangs."""

    name: str
    nodes: int
    gangs: int
    pods: int
    devices: int


@dataclass(frozen=True, slots=True)
class GangSpread:
    """Where a gang is."""

    gang: str
    strategy: str
    pods: int
    nodes: int
    domains: int
    most: int
    """Pods in one domain."""


@dataclass(frozen=True, slots=True)
class History:
    """What the statuses of the gangs remember."""

    since: float | None
    """The oldest incident, in seconds since the epoch."""
    faults: int
    """Of nodes and devices."""
    several: int
    """Of these, those that took several members of a gang at once."""
    replacements: int
    """Incidents with new pods."""
    replace_seconds: float
    """What gangs waited for new pods."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The same faults, if the gangs were placed like this."""

    placed: str
    cost: Cost
    stranded: int
    """Devices of all kinds, on all nodes."""
    pods_left: int
    """Those that have no room."""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    domain_label: str
    """That of nodes, which names their failure domain."""
    resources: tuple[ResourceUse, ...]
    domains: tuple[Domain, ...]
    gangs: tuple[GangSpread, ...]
    history: History
    alternatives: tuple[Alternative, ...]


def report(cluster: Inventory, waiting: Sequence[WholePod], jobs: Sequence[GangJob], key: str) -> Report:
    """Return the survey of a cluster.

    Args:
        cluster: The nodes, and the pods on them.
        waiting: Pods without a node.
        jobs: The gangs.
        key: The label of nodes that names their failure domain; a node without it is a domain of its own.
    """
    by_uid = {job.metadata.uid: job for job in jobs}
    placed = [pod for there in cluster.pods.values() for pod in there]
    sites = _Sites(cluster.nodes)
    board = Board([_host(node, cluster, by_uid, key) for node in cluster.nodes])
    hosts = {host.name: host for host in board.hosts}
    for pod in placed:
        if pod.labels.get(LABEL_UID) in by_uid and pod.node in hosts:
            board.put(_unit(pod, by_uid[pod.labels[LABEL_UID]], sites.of(pod)), hosts[pod.node])
    resources = tuple(_resources(cluster, [*placed, *waiting], sites))
    return Report(
        key,
        resources,
        tuple(_domains(board)),
        tuple(_gangs(board, {_name(job): job for job in jobs})),
        _history(jobs),
        tuple(_alternatives(board, jobs, {one.resource: one.largest_pod for one in resources if one.largest_pod})),
    )


class _Sites:
    """The nodes on which pods may be, whatever room they have. Pods of a role are alike."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self._empty = Inventory(nodes, {})
        self._known: dict[str, frozenset[str]] = {}

    def of(self, pod: WholePod) -> frozenset[str]:
        alike = repr((pod.node_selector, pod.affinity, pod.tolerations))
        if alike not in self._known:
            self._known[alike] = frozenset(
                node.name
                for node in self._empty.nodes
                if node.ready != "Unknown"
                and all(one.filter in NO_ROOM for one in refusals(pod, node, self._empty, ALONE))
            )
        return self._known[alike]


def _host(node: Node, cluster: Inventory, gangs: Mapping[str, GangJob], key: str) -> Host:
    others = [pod for pod in cluster.pods.get(node.name, ()) if pod.labels.get(LABEL_UID) not in gangs]
    room = {name: free_resources(node, others, name) for name in node.allocatable}
    return Host(node.name, node.labels.get(key, node.name), room)


def _unit(pod: WholePod, job: GangJob, sites: frozenset[str]) -> Unit:
    group = job.spec.replica_group
    service = "" if group is None else f"{job.metadata.namespace}/{group.name}"
    return Unit(pod.full_name, _name(job), pod.requests, service, sites)


def _name(job: GangJob) -> str:
    return f"{job.metadata.namespace}/{job.metadata.name}"


def _resources(cluster: Inventory, pods: Sequence[WholePod], sites: _Sites) -> Iterator[ResourceUse]:
    for resource in sorted({name for node in cluster.nodes for name in node.allocatable if is_device(name)}):
        free = {
            node.name: max(0, int(free_resources(node, cluster.pods.get(node.name, ()), resource)))
            for node in cluster.nodes
        }
        asking = [pod for pod in pods if pod.device_requests.get(resource)]
        usable = {name for pod in asking for name in sites.of(pod)}
        usable = usable if asking else {node.name for node in cluster.nodes if node.is_schedulable}
        having = [node for node in cluster.nodes if node.name in usable and node.allocatable.get(resource)]
        left = [free[node.name] for node in having]
        largest = max((pod.device_requests[resource] for pod in asking), default=0)
        short = (
            _is_short(pod.device_requests[resource], [free[one] for one in sites.of(pod)])
            for pod in asking
            if not pod.node
        )
        yield ResourceUse(
            resource=resource,
            nodes=len(having),
            total=int(sum(node.allocatable[resource] for node in having)),
            free=sum(left),
            free_elsewhere=sum(free.values()) - sum(left),
            largest_pod=largest,
            stranded=sum(amount % largest for amount in left) if largest else 0,
            pods_waiting=sum(short),
        )


def _is_short(needs: int, free: Sequence[int]) -> bool:
    """Return whether there is enough in total, and on no node."""
    return max(free, default=0) < needs <= sum(free)


def _domains(board: Board) -> Iterator[Domain]:
    nodes, units = Counter(host.domain for host in board.hosts), defaultdict[str, list[Unit]](list)
    for unit, host in board.placed.values():
        units[host.domain].append(unit)
    for name, there in sorted(units.items()):
        yield Domain(
            name, nodes[name], len({unit.gang for unit in there}), len(there), sum(unit.devices for unit in there)
        )


def _gangs(board: Board, jobs: Mapping[str, GangJob]) -> Iterator[GangSpread]:
    hosts = defaultdict[str, list[Host]](list)
    for unit, host in board.placed.values():
        hosts[unit.gang].append(host)
    for name, there in sorted(hosts.items()):
        domains = Counter(host.domain for host in there)
        yield GangSpread(
            name,
            jobs[name].spec.placement.strategy,
            len(there),
            len({host.name for host in there}),
            len(domains),
            max(domains.values()),
        )


def _history(jobs: Sequence[GangJob]) -> History:
    incidents = [one for job in jobs for one in job.status.incidents]
    found = [incident for job in jobs for _, incident in _faults(job)]
    replaced = [one.milliseconds.replace for one in incidents if one.milliseconds.replace]
    return History(
        min((one.time for one in incidents), default=None),
        len(found),
        sum(len(_members(one)) > 1 for one in found),
        len(replaced),
        sum(replaced) / 1000,
    )


def _faults(job: GangJob) -> list[tuple[str, Incident]]:
    """The settled incidents that are put down to a node or a device, each with its node."""
    return [
        (node_of(one), one)
        for one in job.status.incidents
        if one.settled and default(one.cause.reason).strength >= Strength.NODE and node_of(one)
    ]


def _members(incident: Incident) -> set[str]:
    """The members that it took, as far as they are listed."""
    replaced = (one.member for one in incident.members if one.part == "Replaced")
    return {incident.cause.member, *incident.cause.tied, *replaced}


def _alternatives(board: Board, jobs: Sequence[GangJob], sizes: Mapping[str, int]) -> Iterator[Alternative]:
    """The history as it was, and as each strategy would have had it."""
    units = [unit for unit, _ in board.placed.values()]
    events, seconds = _events(jobs), _seconds(jobs)
    taken = [[gang for gang, incident in event.seen for _ in _members(incident)] for event in events]
    yield Alternative("as it was", cost(taken, units, seconds), _stranded(board, sizes), 0)
    faults = [HostFault(frozenset({event.node}), event.reason in WHOLE) for event in events]
    devices = Counter[str]()
    for unit in units:
        devices[unit.gang] += unit.devices
    units.sort(key=lambda unit: (-devices[unit.gang], unit.gang, unit.name))
    for strategy in Strategy:
        other = Board(board.hosts)
        left = other.place(units, strategy)
        taken = replay(other, faults)
        yield Alternative(f"as {strategy}", cost(taken, units, seconds), _stranded(other, sizes), len(left))


def _stranded(board: Board, sizes: Mapping[str, int]) -> int:
    return sum(board.stranded(resource, size) for resource, size in sizes.items())


@dataclass(frozen=True, slots=True)
class _Event:
    """A fault of a node, as one or several gangs have seen it."""

    node: str
    reason: str
    time: float
    seen: list[tuple[str, Incident]]
    """By gang."""


def _events(jobs: Sequence[GangJob]) -> list[_Event]:
    found = [(node, incident, _name(job)) for job in jobs for node, incident in _faults(job)]
    events: list[_Event] = []
    newest: dict[tuple[str, str], _Event] = {}
    for node, incident, gang in sorted(found, key=lambda one: (one[1].cause.time, one[2])):
        key, time = (node, incident.cause.reason), incident.cause.time
        if key not in newest or time > newest[key].time + TOGETHER_SECONDS:
            newest[key] = _Event(*key, time, [])
            events.append(newest[key])
        newest[key].seen.append((gang, incident))
    return events


def _seconds(jobs: Sequence[GangJob]) -> dict[str, float]:
    """By gang: how long its stops by nodes and devices took; if it had none, those of all gangs."""
    took = {
        _name(job): [
            story.milliseconds / 1000
            for _, incident in _faults(job)
            if (story := incident_story(job, incident, incident.time)).milliseconds is not None
        ]
        for job in jobs
    }
    every = [seconds for of_gang in took.values() for seconds in of_gang] or [0.0]
    return {gang: mean(of_gang or every) for gang, of_gang in took.items()}
