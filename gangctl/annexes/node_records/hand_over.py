"""Hand suspected nodes over to those who repair nodes: by a condition of the node, or by a request to NVSentinel.

The rule: only the leader writes, and only what follows from the records as they are stored (``suspicion.py``). What
was announced is found in the cluster again, so nothing is announced twice, and what isn't so any more is withdrawn.
While records or objects can't be read, nothing is announced or withdrawn. A node that fails must not delay another.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Protocol

from gangctl.annexes.node_records import stored, suspicion
from gangctl.annexes.node_records.companion import read_map
from gangctl.annexes.node_records.records import NodeRecord
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.controller.companions import House
from gangctl.telemetry.metrics.process import Counts

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
RESULTS: Final = ("announced", "withdrawn", "failed")
CONDITION_FLAG: Final = "node-condition"
REQUEST_FLAG: Final = "maintenance-requests"
_WRITTEN: Final = {CONDITION_FLAG: "the condition GangctlSuspected", REQUEST_FLAG: "MaintenanceRequests"}
MOST_NAMESPACES: Final = "3"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_REQUESTS: Final = f"{suspicion.API}/{suspicion.PLURAL}"


class Announcer(Protocol):
    """Announces that a node is suspected."""

    async def read(self) -> Mapping[str, Any]:
        """Return the nodes of which it is announced, with what ``withdraw`` needs.

        Raises:
            ClusterError: it can't be read.
        """

    async def announce(self, node: str, record: NodeRecord, now: float) -> None:
        """Announce it. Raises ClusterError."""

    async def withdraw(self, node: str, its: Any, now: float) -> bool:
        """Withdraw it; return whether it was ours. Raises ClusterError."""


class NodeCondition:
    """The condition GangctlSuspected of nodes."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def read(self) -> Mapping[str, Any]:
        """Return the nodes whose condition is True."""
        return {one.name: None for one in self._house.informers.nodes.items.values() if one.suspected}

    async def announce(self, node: str, record: NodeRecord, now: float) -> None:
        await self._patch(node, record, now)

    async def withdraw(self, node: str, _its: Any, now: float) -> bool:
        """Set it to False."""
        await self._patch(node, None, now)
        return True

    async def _patch(self, node: str, record: NodeRecord | None, now: float) -> None:
        path, body = f"{paths.NODES}/{node}/status", suspicion.condition(node, record, now)
        await self._house.client.request("PATCH", path, body=body, content_type=_STRATEGIC_PATCH)


class MaintenanceRequests:
    """NVSentinel's MaintenanceRequests that this controller has made."""

    def __init__(self, house: House) -> None:
        self._client = house.client
        self._controller = f"{house.settings.namespace}/{house.settings.name}"

    async def read(self) -> Mapping[str, Any]:
        """Return the metadata of the requests by their nodes. Those of others say the same, and are never deleted."""
        found = (await self._client.get(_REQUESTS))["items"]
        by_node = ((one["metadata"], (one.get("spec") or {}).get("healthEvent") or {}) for one in found)
        return {event.get("nodeName", ""): its for its, event in sorted(by_node, key=lambda one: self._is_ours(one[0]))}

    async def announce(self, node: str, record: NodeRecord, now: float) -> None:
        body = suspicion.request(node, record, now, self._controller)
        await self._client.request("POST", _REQUESTS, query={"fieldValidation": "Strict"}, body=body)

    async def withdraw(self, _node: str, its: Any, _now: float) -> bool:
        """Delete the request. NVSentinel uncordons the node, and only then is the request gone."""
        if not self._is_ours(its) or "deletionTimestamp" in its:
            return False
        await self._client.delete(f"{_REQUESTS}/{its['name']}", its["uid"])
        return True

    def _is_ours(self, its: Mapping[str, Any]) -> bool:
        return bool((its.get("annotations") or {}).get(suspicion.CONTROLLER) == self._controller)


class HandOver:
    """Announces suspected nodes in one way, in one process."""

    def __init__(self, house: House, flag: str, announcer: Announcer) -> None:
        self.results = dict.fromkeys(RESULTS, 0)
        self._house = house
        self._flag = flag
        self._namespaces = int(house.options.get(flag, MOST_NAMESPACES))
        self._announcer = announcer
        self._broken_since: float | None = None

    @property
    def health(self) -> WatchHealth:
        """Return for how long it couldn't be read or written."""
        broken = 0.0 if self._broken_since is None else clock.elapsed() - self._broken_since
        return WatchHealth(self._flag.replace("-", ""), broken, 0.0)

    @property
    def requests(self) -> Counts:
        return counts(self._flag, self.results)

    async def watch(self) -> None:
        """Nothing is watched beside what the house watches."""

    async def lead(self) -> NoReturn:
        """Announce for one term: until cancelled."""
        try:
            while True:
                try:
                    await self._look()
                    self._broken_since = None
                except (ClusterError, ValueError) as error:
                    self._fail(error)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._broken_since = None

    async def _look(self) -> None:
        settings, now = self._house.settings, clock.now()
        _, records = await read_map(self._house.client, settings.namespace, stored.name_of_map(settings.name))
        announced, nodes = await self._announcer.read(), self._house.informers.nodes.items.values()
        bad = suspicion.suspected(records, nodes, announced, now, self._namespaces)
        failures = list[ClusterError]()
        for node in (*sorted(announced.keys() - bad), *(one for one in bad if one not in announced)):
            try:
                if node in bad:
                    await self._announcer.announce(node, records[node], now)
                    self.results["announced"] += 1
                    log.warning("%s is suspected (%s): %s", node, self._flag, suspicion.why(node, records[node], now))
                elif await self._announcer.withdraw(node, announced[node], now):
                    self.results["withdrawn"] += 1
                    log.info("%s is suspected no more (%s)", node, self._flag)
            except ClusterError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _fail(self, error: Exception) -> None:
        self.results["failed"] += 1
        if self._broken_since is None:
            self._broken_since = clock.elapsed()
            log.warning("suspected nodes can't be handed over (%s): %s", self._flag, error)


def counts(flag: str, results: Mapping[str, int]) -> Counts:
    """The metric of the writes of one way."""
    name = f"gangctl_{flag.replace('-', '_').removesuffix('s')}_writes"
    return Counts(name, f"Writes of {_WRITTEN[flag]}, by result.", "result", results)


def condition_companion(house: House) -> HandOver:
    return HandOver(house, CONDITION_FLAG, NodeCondition(house))


def request_companion(house: House) -> HandOver:
    return HandOver(house, REQUEST_FLAG, MaintenanceRequests(house))
