"""Watch the taints of devices and the claims that have them, and show them to the gangs whose pods they are about.

The rule: nothing is decided here. DeviceTaintRules are read in the newest version that the cluster serves. While a
watch is broken, what it showed last stays. Each look is at all claims, so a burst of changes, such as a list or a large
gang that starts, must not cost a look for each.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from gangctl.annexes.device_taints.taints import DeviceClaim, pod_signals, read_claim
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound
from gangctl.cluster.kube.decoding import WatchDecoder
from gangctl.cluster.kube.reflector import NamespacedCopy, Reflector, WatchHealth, health
from gangctl.controller.companions import House
from gangctl.kubernetes.device_taints import TaintSource, read_rule, read_slice
from gangctl.telemetry.metrics.process import Counts

log = logging.getLogger(__name__)

GROUP: Final = "/apis/resource.k8s.io"
SERVED: Final = ("v1", "v1beta2")
"""Of DeviceTaintRules, the newest first: Kubernetes 1.37 and 1.36."""
LOOK_SECONDS: Final = 600.0
"""How often it is looked which version the cluster serves."""
RETRY_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 1.0
"""Between two looks at the claims: nothing waits for them, since pods leave when their gang restarts."""
RESULTS: Final = ("shown", "gone")
_ABSENT: Final = "the cluster doesn't serve resource.k8s.io/v1: it needs Kubernetes 1.34, or --device-taints=false"
SLICES: Final = WatchDecoder(dict[str, Any], read_slice)
RULES: Final = WatchDecoder(dict[str, Any], read_rule)
CLAIMS: Final = WatchDecoder(dict[str, Any], read_claim)


class DeviceTaints:
    """The tainted devices of one cluster that pods have."""

    def __init__(self, house: House) -> None:
        self.results = dict.fromkeys(RESULTS, 0)
        self._house = house
        self._slices = Reflector(house.client, f"{GROUP}/v1/resourceslices", SLICES, self._on_change, absent=_ABSENT)
        self._claims: NamespacedCopy[DeviceClaim] = NamespacedCopy(
            house.settings.watch_namespaces,
            lambda one: Reflector(
                *(house.client, paths.collection(f"{GROUP}/v1", one, "resourceclaims"), CLAIMS, self._on_change),
                absent=_ABSENT,
            ),
        )
        self._rules: Mapping[str, TaintSource] = {}
        self._has_changed = asyncio.Event()

    @property
    def health(self) -> WatchHealth:
        """Return how fresh they are: of several watches, the least fresh."""
        return health("devicetaints", [self._slices, *self._claims.reflectors.values()])

    @property
    def requests(self) -> Counts:
        return counts(self.results)

    async def watch(self) -> None:
        """Keep them fresh until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slices.run())
            tasks.create_task(self._follow_rules())
            tasks.create_task(self._show_changes())
            for one in self._claims.reflectors.values():
                tasks.create_task(one.run())

    async def lead(self) -> NoReturn:
        """Nothing is written."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def _follow_rules(self) -> NoReturn:
        version, rules = "", None
        while True:
            before = version
            try:
                version = await _served(self._house.client)
            except ClusterError as error:
                log.info("the versions of resource.k8s.io can't be read: %s", error)
            if version and version != before:
                rules = Reflector(self._house.client, f"{GROUP}/{version}/devicetaintrules", RULES, self._on_change)
                self._rules = rules.items
            if rules is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await rules.run()

    def _on_change(self, _old: object, _new: object) -> None:
        self._has_changed.set()

    async def _show_changes(self) -> NoReturn:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            self._show()
            await asyncio.sleep(PAUSE_SECONDS)

    def _show(self) -> None:
        informers, sources = self._house.informers, (*self._slices.items.values(), *self._rules.values())
        before, found = informers.pod_signals, pod_signals(sources, self._claims.items.values())
        self.results["shown"] += len(found.keys() - before.keys())
        self.results["gone"] += len(before.keys() - found.keys())
        if before or found:
            informers.show_pod_signals(found)


async def _served(client: Client) -> str:
    """The newest version that has DeviceTaintRules; empty if none does."""
    for version in SERVED:
        with suppress(NotFound):
            found = await client.get(f"{GROUP}/{version}")
            if any(one["name"] == "devicetaintrules" for one in found["resources"]):
                return version
    return ""


def counts(results: Mapping[str, int]) -> Counts:
    text = "Pods whose claimed devices became tainted or untainted, by result."
    return Counts("gangctl_device_taints", text, "result", results)
