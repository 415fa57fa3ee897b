"""The device guard: which pods that are no gang's are evicted, because a device that they hold is unhealthy. Pure.

    evict(p, now) <=>  some device d of p is Unhealthy, and now - max(since(p, d), fresh) >= SETTLE_SECONDS
                  and  p is not ending, p was not evicted before, and no refusal of p asks to wait
                  and  now - begun >= WINDOW_SECONDS
                  and  |evictions on the node of p in the last WINDOW_SECONDS| < NODE_EVICTIONS
                  and  |evictions in the last WINDOW_SECONDS| < CLUSTER_EVICTIONS

``fresh``: since when the watch has shown every change; ``begun``: when this leader began to guard. Those that were
refused the least come first, then those that have been unhealthy the longest. What must not happen: a pod is evicted
because its device flaps, because a device is Unknown (that is what the kubelet tells of a plugin that restarts), or
twice; a plugin that calls all devices unhealthy, or a controller that crashes again and again, empties the cluster
faster than the rates. A new leader doesn't know what the last one evicted, so it evicts nothing for one window.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gangctl.api.reasons import Reason
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event
from gangctl.words import decisions

SETTLE_SECONDS: Final = 10.0
"""A device that is healthy again sooner flaps."""
WINDOW_SECONDS: Final = 60.0
NODE_EVICTIONS: Final = 2
CLUSTER_EVICTIONS: Final = 10
FIRST_WAIT_SECONDS: Final = 5.0
"""After the first refusal; each further one doubles it."""
LONGEST_WAIT_SECONDS: Final = 60.0
UNHEALTHY: Final = "Unhealthy"


@dataclass(frozen=True, slots=True)
class GuardedPod:
    """A pod with the label, as it is now."""

    uid: str
    namespace: str
    name: str
    node: str
    devices: tuple[Device, ...] = ()
    ending: bool = False
    """Whether it is being deleted, or its containers have ended for good."""
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class EvictionRefusal:
    """The last answers to the eviction of a pod."""

    times: int
    again_at: float


@dataclass(frozen=True, slots=True)
class GuardState:
    """The state of one leader's guard. Times are in seconds on the clock of its term."""

    begun: float
    since: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """UID of a pod, resource and name of its unhealthy device -> since when."""
    done: frozenset[str] = frozenset()
    """UIDs of pods that were evicted and may still be seen."""
    evictions: tuple[tuple[float, str], ...] = ()
    """When, and on which node: those of the last window."""
    refusals: Mapping[str, EvictionRefusal] = field(default_factory=dict)
    """By UID of the pod."""


@dataclass(frozen=True, slots=True)
class EvictionDecision:
    """The pods to evict now, and those that wait."""

    evict: tuple[tuple[GuardedPod, Device], ...] = ()
    """With the device for which it is evicted."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """UID of a pod with an unhealthy device -> why it is not evicted now."""
    look_again_at: float | None = None
    """When this can change though no pod does; None = never."""


def note_health(memory: GuardState, pods: Iterable[GuardedPod], now: float) -> GuardState:
    """Remember since when devices have been unhealthy; forget pods, faults and evictions that are past."""
    known = tuple(pods)
    sick = {_key(pod, one) for pod in known for one in pod.devices if one.health == UNHEALTHY}
    uids = {uid for uid, *_ in sick}
    return replace(
        memory,
        since={one: memory.since.get(one, now) for one in sick},
        done=memory.done & {pod.uid for pod in known},
        evictions=tuple((at, node) for at, node in memory.evictions if now - at < WINDOW_SECONDS),
        refusals={uid: one for uid, one in memory.refusals.items() if uid in uids},
    )


def note_eviction(memory: GuardState, pod: GuardedPod, now: float) -> GuardState:
    return replace(memory, done=memory.done | {pod.uid}, evictions=(*memory.evictions, (now, pod.node)))


def note_refusal(
    memory: GuardState, pod: GuardedPod, now: float, *, at_least: float = 0.0, counts: bool = False
) -> GuardState:
    """Remember an eviction that was refused, or not answered.

    Args:
        memory: What was remembered before.
        pod: The pod, which stays.
        now: In seconds.
        at_least: Seconds in which it is not tried again.
        counts: Whether it may have taken place all the same, so that it counts for the rates.
    """
    times = memory.refusals[pod.uid].times + 1 if pod.uid in memory.refusals else 1
    wait = max(at_least, min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(times - 1, 10)))
    return replace(
        memory,
        refusals={**memory.refusals, pod.uid: EvictionRefusal(times, now + wait)},
        evictions=(*memory.evictions, (now, pod.node)) if counts else memory.evictions,
    )


def decide_evictions(memory: GuardState, pods: Iterable[GuardedPod], now: float, fresh: float) -> EvictionDecision:
    """Decide whom to evict now, why not the others, and when to look again.

    Args:
        memory: What :func:`note_health` made of these pods.
        pods: All guarded pods.
        now: In seconds.
        fresh: Since when the watch has shown every change, in seconds.
    """
    on_node = Counter(node for _, node in memory.evictions)
    found: list[tuple[GuardedPod, Device]] = []
    waiting: dict[str, str] = {}
    moments: list[float] = []
    for since, pod, device in _sick(memory, pods):
        settled, refusal = max(since, fresh) + SETTLE_SECONDS, memory.refusals.get(pod.uid)
        if now < settled:
            why, until = decisions.device_may_recover(device.name), settled
        elif now < memory.begun + WINDOW_SECONDS:
            why, until = decisions.evictions_unknown(), memory.begun + WINDOW_SECONDS
        elif refusal is not None and now < refusal.again_at:
            why, until = decisions.refused_in_a_row(refusal.times), refusal.again_at
        elif on_node[pod.node] >= NODE_EVICTIONS:
            why, until = decisions.evictions_of_node(NODE_EVICTIONS, pod.node), _freed(memory)
        elif on_node.total() >= CLUSTER_EVICTIONS:
            why, until = decisions.evictions_of_cluster(CLUSTER_EVICTIONS), _freed(memory)
        else:
            on_node[pod.node] += 1
            found.append((pod, device))
            continue
        waiting[pod.uid] = why
        moments.append(max(until, now))
    return EvictionDecision(tuple(found), waiting, min(moments, default=None))


def eviction_event(pod: GuardedPod, device: Device) -> Event:
    message = decisions.pod_evicted(device.name, device.resource, pod.node, device.message)
    return Event(Reason.DEVICE_GUARD_EVICTED, message)


def refusal_event(memory: GuardState, pod: GuardedPod, device: Device, why: str) -> Event | None:
    """The Event of a refused eviction; None if the pod has one for this fault. ``memory``: without this refusal."""
    if pod.uid in memory.refusals:
        return None
    message = decisions.eviction_refused(device.name, device.resource, pod.node, why, device.message)
    return Event(Reason.DEVICE_GUARD_REFUSED, message)


def _sick(memory: GuardState, pods: Iterable[GuardedPod]) -> list[tuple[float, GuardedPod, Device]]:
    """The pods that may be evicted in their order, with the device and since when it has been unhealthy."""
    found = []
    times = {uid: one.times for uid, one in memory.refusals.items()}
    for pod in pods:
        devices = [(memory.since[_key(pod, one)], one) for one in pod.devices if one.health == UNHEALTHY]
        if devices and not pod.ending and pod.uid not in memory.done:
            since, device = min(devices, key=lambda one: (one[0], one[1].name))
            found.append((since, pod, device))
    return sorted(found, key=lambda one: (times.get(one[1].uid, 0), one[0], one[1].uid))


def _key(pod: GuardedPod, device: Device) -> tuple[str, str, str]:
    return pod.uid, device.resource, device.name


def _freed(memory: GuardState) -> float:
    """When the oldest eviction leaves the window."""
    return min((at for at, _ in memory.evictions), default=0.0) + WINDOW_SECONDS
