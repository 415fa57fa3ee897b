"""The loop of the device guard: it asks :mod:`gangctl.annexes.device_guard.policy` whom to evict, and requests that.

The rule: it runs beside the gangs' loop while this process leads, and one request at a time. A request may take long,
so each follows from a look of its own. Nothing is evicted while the watch is broken. A refusal is reported once for
each pod and fault, in an Event of the pod.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, NoReturn

from gangctl.annexes.device_guard import policy
from gangctl.annexes.device_guard.pods import WatchedPods
from gangctl.annexes.device_guard.policy import GuardedPod, GuardState
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError, Held, Retryable
from gangctl.cluster.kube.client import NoAnswer
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.controller.companions import House
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event
from gangctl.telemetry.metrics.process import Counts

log = logging.getLogger(__name__)

RESULTS: Final = ("evicted", "held", "gone", "failed")
"""Of requests, for the metric."""
BROKEN_SECONDS: Final = 1.0
"""How often a broken watch is looked at."""
GATHERING_SECONDS: Final = 0.5
"""Changes that come within this time of each other cause one round."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of one request."""

    result: str
    why: str = ""
    """Why the pod was not evicted."""
    after: float = 0.0
    """Seconds that the API server asks to wait."""
    is_known: bool = True
    """Whether it is certain that the pod was not evicted."""


class DeviceGuard:
    """The device guard of one process."""

    def __init__(self, cluster: WatchedPods) -> None:
        self.counts = dict.fromkeys(RESULTS, 0)
        """Requests by result, since the process began."""
        self._cluster = cluster
        self._waiting: dict[str, str] = {}

    @property
    def health(self) -> WatchHealth:
        """Return how fresh the pods are."""
        return self._cluster.health

    @property
    def requests(self) -> Counts:
        return Counts(
            "gangctl_device_guard_evictions",
            "Requests of the device guard to evict a pod outside gangs, by result.",
            "result",
            self.counts,
        )

    async def watch(self) -> None:
        """Keep the pods fresh until cancelled."""
        await self._cluster.run()

    async def lead(self) -> NoReturn:
        """Guard for one term: until cancelled."""
        memory = GuardState(begun=clock.now())
        while True:
            self._cluster.changed.clear()
            memory, seconds = await self._round(memory)
            try:
                async with asyncio.timeout(seconds):
                    await self._cluster.changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(GATHERING_SECONDS)

    async def _round(self, memory: GuardState) -> tuple[GuardState, float | None]:
        """Evict the first whom to evict now; return what to remember, and the seconds until the next round."""
        fresh = self._cluster.fresh
        if fresh is None:
            return memory, BROKEN_SECONDS
        pods, now = self._cluster.pods, clock.now()
        memory = policy.note_health(memory, pods, now)
        verdict = policy.decide_evictions(memory, pods, now, fresh)
        for pod in pods:
            why = verdict.waiting.get(pod.uid, "")
            if why and self._waiting.get(pod.uid) != why:
                log.info("pod %s/%s holds an unhealthy device and is not evicted yet: %s", pod.namespace, pod.name, why)
        self._waiting = dict(verdict.waiting)
        if verdict.evict:
            return await self._evict(memory, *verdict.evict[0]), 0.0
        return memory, None if verdict.look_again_at is None else max(0.0, verdict.look_again_at - clock.now())

    async def _evict(self, memory: GuardState, pod: GuardedPod, device: Device) -> GuardState:
        answer = await self._answer(pod)
        self.counts[answer.result] += 1
        now = clock.now()
        if answer.result == "evicted":
            self._tell(pod, policy.eviction_event(pod, device))
            return policy.note_eviction(memory, pod, now)
        if answer.why and answer.is_known:
            self._tell(pod, policy.refusal_event(memory, pod, device, answer.why))
        return policy.note_refusal(memory, pod, now, at_least=answer.after, counts=not answer.is_known)

    async def _answer(self, pod: GuardedPod) -> _Answer:
        try:
            return _Answer("evicted" if await self._cluster.evict(pod) else "gone")
        except Held as error:
            return _Answer("held", str(error), error.after)
        except NoAnswer as error:
            log.warning("pod %s/%s may not be evicted, so this is tried again: %s", pod.namespace, pod.name, error)
            return _Answer("failed", str(error), is_known=False)
        except Retryable as error:
            return _Answer("failed", str(error), error.after)
        except ClusterError as error:
            return _Answer("failed", str(error))

    def _tell(self, pod: GuardedPod, event: Event | None) -> None:
        if event is None:
            return
        log.warning("pod %s/%s: %s", pod.namespace, pod.name, event.message)
        try:
            self._cluster.tell(pod, event)
        except ClusterError as error:
            log.warning("the Event of pod %s/%s is not sent: %s", pod.namespace, pod.name, error)


def companion(house: House) -> DeviceGuard:
    return DeviceGuard(WatchedPods(house.client, house.settings.watch_namespaces, house.recorder))
