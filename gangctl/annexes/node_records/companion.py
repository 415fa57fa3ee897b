"""Keep the records of nodes: count what the gangs' statuses say, and store it in a ConfigMap.

The rule: only the leader counts and writes, with the version that it has read; after a conflict it reads again and
counts anew, which counts nothing twice. A fault is stored within seconds, the times of observation every ten minutes.
It only advises: if the records can't be read or written, pods are created and spares are promoted without advice.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from prometheus_client.core import GaugeMetricFamily

from gangctl.annexes.node_records import records, stored
from gangctl.annexes.node_records.records import HOUR, Records
from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError, Conflict
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound, read_object, read_version
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.controller.companions import House
from gangctl.telemetry.metrics.exposition import MAX_NODES
from gangctl.telemetry.metrics.process import Counts

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""How often gangs that have changed are looked at."""
OBSERVE_SECONDS: Final = 60.0
STORE_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 30.0
RESULTS: Final = ("stored", "conflict", "failed")


def counts(results: Mapping[str, int]) -> Counts:
    return Counts("gangctl_node_record_writes", "Writes of the records of nodes, by result.", "result", results)


def gauges(found: Records, now: float) -> tuple[Counts, Counts]:
    """The metrics of nodes with faults: the worst, and how many are avoided."""
    scores = {name: one.score(now) for name, one in found.items() if one.namespaces}
    worst = sorted(scores, key=lambda name: -scores[name])[:MAX_NODES]
    every = {name for name, score in scores.items() if score >= records.AVOIDED}
    some = {name for name in scores if found[name].avoided_by(now)} - every
    of_nodes = "Score of a node with faults; from 2.4 on, all new pods avoid it."
    avoided = "Nodes that new pods avoid: all, or those of some namespaces."
    return (
        Counts("gangctl_node_score", of_nodes, "node", {name: scores[name] for name in worst}, GaugeMetricFamily),
        Counts("gangctl_nodes_avoided", avoided, "by", {"all": len(every), "some": len(some)}, GaugeMetricFamily),
    )


class _Answers(NamedTuple):
    records: Records
    time: float
    by_namespace: dict[str, tuple[str, ...]]


class NodeRecords:
    """The records that one process keeps while it leads."""

    def __init__(self, house: House) -> None:
        self.results = dict.fromkeys(RESULTS, 0)
        self._house = house
        self._map = stored.name_of_map(house.settings.name)
        self._records: Records = {}
        self._version = ""
        """The resourceVersion of the ConfigMap; empty = there is none."""
        self._written: Records = {}
        self._answers = _Answers(self._records, 0.0, {})
        self._changed: dict[str, GangJob] = {}
        """By UID: gangs to look at, as they were seen last. One may be deleted at once."""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        """By node: the time of observation in this hour that isn't in the records yet."""
        self._broken_since: float | None = None

    @property
    def health(self) -> WatchHealth:
        """Return for how long the records couldn't be read or written."""
        broken = 0.0 if self._broken_since is None else clock.elapsed() - self._broken_since
        return WatchHealth("noderecords", broken, 0.0)

    @property
    def requests(self) -> Counts:
        return counts(self.results)

    async def watch(self) -> None:
        """Nothing is watched beside what the house watches."""

    async def lead(self) -> NoReturn:
        """Count and store for one term: until cancelled."""
        informers = self._house.informers
        self._seconds.clear()
        try:
            informers.listeners.append(self._look_at)
            await self._read()
            self._house.advice.append(self._avoided)
            self._house.gauges.append(self._gauges)
            await self._keep()
        finally:
            informers.listeners.remove(self._look_at)
            if self._avoided in self._house.advice:
                self._house.advice.remove(self._avoided)
                self._house.gauges.remove(self._gauges)
            self._broken_since = None

    def _look_at(self, uid: str) -> None:
        job = self._house.informers.gang(uid)
        if job is not None:
            self._changed[uid] = job

    def _avoided(self, job: GangJob) -> Sequence[str]:
        """Of a plan with hundreds of pods, only the first looks at all nodes."""
        known, now = self._answers, clock.now()
        if known.records is not self._records or now > known.time + OBSERVE_SECONDS:
            known = self._answers = _Answers(self._records, now, {})
        namespace = job.metadata.namespace
        if namespace not in known.by_namespace:
            known.by_namespace[namespace] = records.avoided(self._records, namespace, now)
        return known.by_namespace[namespace]

    def _gauges(self) -> tuple[Counts, Counts]:
        return gauges(self._records, clock.now())

    async def _keep(self) -> NoReturn:
        observed = written = clock.now()
        while True:
            await asyncio.sleep(LOOK_SECONDS if self._broken_since is None else RETRY_SECONDS)
            now = clock.now()
            if int(now // HOUR) != int(observed // HOUR):
                self._take_observed(observed)
            if now >= observed + OBSERVE_SECONDS:
                self._observe(min(now - observed, 2 * OBSERVE_SECONDS))
                observed = now
            self._count(now)
            if self._records is not self._written or now >= written + STORE_SECONDS:
                self._take_observed(now)
                self._take_checks(now)
                await self._write(now)
                written = now

    def _count(self, now: float) -> None:
        jobs, self._changed = self._changed, {}
        for job in jobs.values():
            if job.status.incidents:
                found = records.findings(job.metadata.namespace, job.metadata.name, job.status.incidents)
                self._records = records.with_findings(self._records, found, now)
            for check in () if job.status.checks is None else job.status.checks.results:
                for node in check.nodes:
                    self._records = records.with_passed(self._records, node, job.metadata.namespace, check.time)

    def _observe(self, seconds: float) -> None:
        informers = self._house.informers
        running = (
            uid
            for uid in informers.gangs.items
            if (job := informers.gang(uid)) is not None and job.status.phase is GangPhase.RUNNING
        )
        for node in {one.pod.node for uid in running for one in informers.pods_of(uid) if one.pod.node}:
            self._seconds[node] += seconds

    def _take_observed(self, time: float) -> None:
        if self._seconds:
            self._records = records.with_observed(self._records, int(time // HOUR), self._seconds)
            self._seconds.clear()

    def _take_checks(self, now: float) -> None:
        """With a write that comes anyway: a passed check is worth none."""
        for uid in self._house.informers.gangs.items:
            job = self._house.informers.gang(uid)
            if job is not None and job.status.checks is not None:
                self._records = records.with_checks(self._records, job.status.checks.results, now)

    async def _read(self) -> None:
        """Read what is stored, with any number of tries, and count anew."""
        while True:
            try:
                self._version, self._written = await self._stored()
            except ClusterError as error:
                self._fail("read", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._broken_since = None
                self._records = records.merged(self._written, self._records)
                for uid in tuple(self._house.informers.gangs.items):
                    self._look_at(uid)
                return

    async def _stored(self) -> tuple[str, Records]:
        try:
            return await read_map(self._house.client, self._house.settings.namespace, self._map)
        except UnreadableRecordsError as error:
            log.error("the records of nodes in ConfigMap %s can't be read and begin anew: %s", self._map, error)  # noqa: TRY400
            return error.version, {}

    async def _write(self, now: float) -> None:
        namespace = self._house.settings.namespace
        text = stored.write(self._records, now)
        metadata = {"name": self._map, "namespace": namespace}
        if self._version:
            metadata["resourceVersion"] = self._version
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {stored.KEY: text}}
        path = paths.config_map(namespace, self._map if self._version else "")
        method = "PUT" if self._version else "POST"
        try:
            answer = await self._house.client.request(method, path, body=body)
            version = read_version(read_object(answer, f"{method} {path}"), f"{method} {path}")
        except (Conflict, NotFound):
            self.results["conflict"] += 1
            await self._read()
        except ClusterError as error:
            self._fail("written", error)
        else:
            self.results["stored"] += 1
            self._broken_since = None
            self._version = version
            self._written = self._records = records.pruned(self._records, now)

    def _fail(self, what: str, error: ClusterError) -> None:
        self.results["failed"] += 1
        if self._broken_since is None:
            self._broken_since = clock.elapsed()
            log.warning("the records of nodes in ConfigMap %s can't be %s: %s", self._map, what, error)


class UnreadableRecordsError(ValueError):
    """The ConfigMap has no records that can be read."""

    def __init__(self, version: str, why: str) -> None:
        super().__init__(why)
        self.version = version


async def read_map(client: Client, namespace: str, name: str) -> tuple[str, Records]:
    """Return the resourceVersion of the ConfigMap and its records; empty if there is none.

    Raises:
        ClusterError: the request failed.
        UnreadableRecordsError: they can't be read.
    """
    path = paths.config_map(namespace, name)
    try:
        found = await client.get(path)
    except NotFound:
        return "", {}
    version = read_version(found, f"GET {path}")
    try:
        return version, stored.read((found.get("data") or {}).get(stored.KEY, ""))
    except ValueError as error:
        raise UnreadableRecordsError(version, str(error)) from None
