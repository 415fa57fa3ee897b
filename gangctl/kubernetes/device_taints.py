"""Taints of devices, as ResourceSlices and DeviceTaintRules have them. Pure.

The rule: a taint of a device counts if its effect is NoSchedule or NoExecute. The scheduler gives the device to no new
pod then, unless the claim tolerates the taint.

Sources: Kubernetes, resource/v1 types.go (DeviceTaint, DeviceTaintRule), KEP-5055. A ResourceSlice has the taints of
its driver, a DeviceTaintRule those of an administrator.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from gangctl.core.facts.node_affinity import Taint
from gangctl.kubernetes.containers import epoch_time
from gangctl.kubernetes.schema import RawMetadata

_COUNT: Final = frozenset({"NoSchedule", "NoExecute"})
"""The effect None only informs."""


class DeviceTaint(NamedTuple):
    """A taint of devices, of a driver's slice or by a rule. A selector that is None selects all."""

    driver: str | None
    pool: str | None
    device: str | None
    taint: Taint
    since: float
    """In seconds since the epoch; 0 = that isn't said."""


class TaintSource(NamedTuple):
    """A ResourceSlice or DeviceTaintRule: the taints in it."""

    uid: str
    resource_version: str
    taints: tuple[DeviceTaint, ...]


class DeviceSlice(NamedTuple):
    """A ResourceSlice with all its devices. The controller, which keeps every slice, reads the taints alone."""

    source: TaintSource
    node: str
    """Empty if its devices aren't those of one node."""
    devices: tuple[tuple[str, str, str], ...]
    """Driver, pool and name of each."""


def read_slice(raw: Mapping[str, Any]) -> TaintSource:
    spec = raw.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name")
    found = [
        DeviceTaint(spec.get("driver"), pool, one.get("name"), *_taint(taint))
        for one in spec.get("devices") or ()
        for taint in one.get("taints") or ()
    ]
    return _source(raw, found)


def read_devices(raw: Mapping[str, Any]) -> DeviceSlice:
    spec = raw.get("spec") or {}
    driver, pool = spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""
    names = tuple((driver, pool, one.get("name", "")) for one in spec.get("devices") or ())
    return DeviceSlice(read_slice(raw), spec.get("nodeName") or "", names)


def read_rule(raw: Mapping[str, Any]) -> TaintSource:
    """Read a DeviceTaintRule. Without a selector it selects nothing, with an empty one all devices."""
    spec = raw.get("spec") or {}
    chosen = spec.get("deviceSelector")
    if chosen is None:
        return _source(raw, ())
    driver, pool, device = (chosen.get(one) for one in ("driver", "pool", "device"))
    return _source(raw, [DeviceTaint(driver, pool, device, *_taint(spec.get("taint") or {}))])


def selects(one: DeviceTaint, device: Sequence[str]) -> bool:
    """Return whether a taint is of this device: driver, pool and name."""
    return all(asked in {None, its} for asked, its in zip(one[:3], device, strict=True))


def tainted_devices(slices: Iterable[DeviceSlice], rules: Iterable[TaintSource]) -> Mapping[str, tuple[str, ...]]:
    """Node -> its tainted devices with one taint each, in words. The node "" has those that aren't of one node."""
    by_rule = [taint for rule in rules for taint in rule.taints]
    found: dict[str, list[str]] = {}
    for one in slices:
        for device in one.devices:
            taint = next((taint for taint in (*one.source.taints, *by_rule) if selects(taint, device)), None)
            if taint is not None:
                found.setdefault(one.node, []).append(f"{'/'.join(device)} ({taint.taint})")
    return {node: tuple(sorted(devices)) for node, devices in found.items()}


def _taint(raw: Mapping[str, Any]) -> tuple[Taint, float]:
    time = raw.get("timeAdded")
    since = epoch_time(datetime.fromisoformat(time)) if time else 0.0
    return Taint(raw.get("key", ""), raw.get("value", ""), raw.get("effect", "")), since


def _source(raw: Mapping[str, Any], found: Iterable[DeviceTaint]) -> TaintSource:
    metadata = RawMetadata.model_validate(raw["metadata"])
    counted = tuple(one for one in found if one.taint.effect in _COUNT)
    return TaintSource(metadata.uid, metadata.resource_version, counted)
