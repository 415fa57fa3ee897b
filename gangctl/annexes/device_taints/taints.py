"""Find the pods whose claimed devices are tainted. Pure.

The rule: the scheduler gives a tainted device to no new pod, and Kubernetes deletes the pods of one that is tainted
with NoExecute. A pod that has one with NoSchedule may stay, and a restart in place would keep it there. So it leaves
when its gang restarts for another reason, unless its claim tolerates the taint. As for all signals of nodes, only a
taint counts that is newer than the pod.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gangctl.core.facts.node_affinity import untolerated_taints
from gangctl.core.facts.world import NodeAnswer, NodeSignal
from gangctl.kubernetes.device_taints import DeviceTaint, TaintSource, selects
from gangctl.kubernetes.schema import RawMetadata
from gangctl.kubernetes.signals import MAX_WORDS


class ClaimedDevice(NamedTuple):
    """A device that a claim has."""

    driver: str
    pool: str
    device: str
    tolerations: tuple[Mapping[str, Any], ...] = ()


class DeviceClaim(NamedTuple):
    """A ResourceClaim that has devices."""

    uid: str
    namespace: str
    resource_version: str
    pods: tuple[str, ...]
    """UIDs of the pods that may use it."""
    devices: tuple[ClaimedDevice, ...]


def read_claim(raw: Mapping[str, Any]) -> DeviceClaim:
    metadata, status = RawMetadata.model_validate(raw["metadata"]), raw.get("status") or {}
    pods = [one["uid"] for one in status.get("reservedFor") or () if one.get("resource") == "pods"]
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    devices = [
        ClaimedDevice(one["driver"], one["pool"], one["device"], tuple(one.get("tolerations") or ())) for one in results
    ]
    return DeviceClaim(metadata.uid, metadata.namespace, metadata.resource_version, tuple(pods), tuple(devices))


def pod_signals(sources: Iterable[TaintSource], claims: Iterable[DeviceClaim]) -> Mapping[str, NodeSignal]:
    """UID of a pod -> the newest taint of its devices."""
    by_device, wide = defaultdict[tuple[str, str, str], list[DeviceTaint]](list), list[DeviceTaint]()
    for one in (taint for source in sources for taint in source.taints):
        if one.driver is None or one.pool is None or one.device is None:
            wide.append(one)
        else:
            by_device[one.driver, one.pool, one.device].append(one)
    found = dict[str, NodeSignal]()
    if not by_device and not wide:
        return found
    for claim in claims:
        for device in claim.devices:
            taints = [*by_device.get(device[:3], ()), *(one for one in wide if selects(one, device[:3]))]
            kept = [one for one in taints if untolerated_taints(device.tolerations, (one.taint,))]
            for uid in claim.pods if kept else ():
                signal = _signal(max(kept, key=lambda one: one.since), device, uid)
                if uid not in found or found[uid].since < signal.since:
                    found[uid] = signal
    return found


def _signal(one: DeviceTaint, device: ClaimedDevice, uid: str) -> NodeSignal:
    what = f"the taint {one.taint} of device {'/'.join(device[:3])}"
    return NodeSignal(NodeAnswer.LEAVE_AT_RESTART, what[:MAX_WORDS], one.since, pod=uid)
