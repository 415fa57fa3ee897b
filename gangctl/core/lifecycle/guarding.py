"""What the device guard tells of a pod that is no gang's, in Events of that pod.

The rule: a refusal is told once for each fault of a pod, though the eviction is tried again.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.core.policy.device_guard import GuardedPod, Memory
from gangctl.words import decisions


def evicted(pod: GuardedPod, device: Device) -> Event:
    """Return the Event of an eviction."""
    message = decisions.pod_evicted(device.name, device.resource, pod.node, device.message)
    return Event(EventType.WARNING, Reason.DEVICE_GUARD_EVICTED, message)


def refused(memory: Memory, pod: GuardedPod, device: Device, why: str) -> Event | None:
    """Return the Event of a refused eviction; None if the pod has one. ``memory``: without this refusal."""
    if pod.uid in memory.refusals:
        return None
    message = decisions.eviction_refused(device.name, device.resource, pod.node, why, device.message)
    return Event(EventType.WARNING, Reason.DEVICE_GUARD_REFUSED, message)
