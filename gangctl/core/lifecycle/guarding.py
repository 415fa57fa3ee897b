"""What the device guard tells of a pod that is no gang's, in Events of that pod.

The rule: a refusal is told once for each fault of a pod, though the eviction is tried again.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.core.policy.device_guard import GuardedPod, Memory


def evicted(pod: GuardedPod, device: Device) -> Event:
    """The Event of an eviction."""
    text = f"{_seen(pod, device)} The pod was evicted; its owner replaces it."
    return Event(EventType.WARNING, Reason.DEVICE_GUARD_EVICTED, text)


def refused(memory: Memory, pod: GuardedPod, device: Device, why: str) -> Event | None:
    """The Event of an eviction that was refused; None if that was told. ``memory``: without this refusal."""
    if pod.uid in memory.refusals:
        return None
    text = f"{_seen(pod, device)} The pod is not evicted yet, and the controller tries again: {why}"
    return Event(EventType.WARNING, Reason.DEVICE_GUARD_REFUSED, text)


def _seen(pod: GuardedPod, device: Device) -> str:
    said = f" ({device.message})" if device.message else ""
    return f"Device {device.name} ({device.resource}) on node {pod.node} is unhealthy{said}."
