"""Pods, nodes and claims as the API server has them, read into the values of ``world.py``.

The rule: whatever another client wrote must not end the answer. What isn't of the expected type is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from gangctl.core.facts.node_affinity import REQUIRED, quantity
from gangctl.explain.why.world import Amounts, Claim, NeighbourTerm, NodeTaint, SeenNode, SeenPod

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def has_ended(raw: Mapping[str, Any]) -> bool:
    """Whether a pod has ended and so needs nothing of its node."""
    return _text(_mapping(raw.get("status")).get("phase")) in _ENDED


def pod(raw: Mapping[str, Any]) -> SeenPod:
    """A pod."""
    metadata, spec = _mapping(raw.get("metadata")), _mapping(raw.get("spec"))
    scheduled = next(
        (
            one
            for one in _mappings(_mapping(raw.get("status")).get("conditions"))
            if one.get("type") == "PodScheduled" and one.get("status") == "False"
        ),
        {},
    )
    affinity, namespace = _mapping(spec.get("affinity")), _text(metadata.get("namespace"))
    owner = next((one for one in _mappings(metadata.get("ownerReferences")) if one.get("controller")), {})
    return SeenPod(
        namespace=namespace,
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        node=_text(spec.get("nodeName")),
        labels=_texts(metadata.get("labels")),
        owner=_text(owner.get("kind")),
        priority=found if isinstance(found := spec.get("priority"), int) else 0,
        requests=requests(spec),
        ports=frozenset(_ports(spec)),
        node_selector=_mapping(spec.get("nodeSelector")),
        affinity=affinity,
        tolerations=tuple(_mappings(spec.get("tolerations"))),
        near=tuple(_terms(affinity.get("podAffinity"), namespace)),
        apart=tuple(_terms(affinity.get("podAntiAffinity"), namespace)),
        claims=tuple(_claims(spec, _text(metadata.get("name")))),
        gates=tuple(_text(one.get("name")) for one in _mappings(spec.get("schedulingGates"))),
        scheduler=_text(spec.get("schedulerName")),
        said=_text(scheduled.get("message")) or _text(scheduled.get("reason")),
        created_at=_seconds(metadata.get("creationTimestamp")),
        deleting=metadata.get("deletionTimestamp") is not None,
        unread=tuple(_unread(spec)),
    )


def node(raw: Mapping[str, Any]) -> SeenNode:
    """A node."""
    metadata, spec, status = (_mapping(raw.get(key)) for key in ("metadata", "spec", "status"))
    return SeenNode(
        name=_text(metadata.get("name")),
        labels=_texts(metadata.get("labels")),
        taints=tuple(
            NodeTaint(*(_text(one.get(key)) for key in ("key", "value", "effect")))
            for one in _mappings(spec.get("taints"))
        ),
        cordoned=spec.get("unschedulable") is True,
        allocatable=_amounts(status.get("allocatable")),
    )


def claim(
    name: str,
    raw: Mapping[str, Any] | None,
    volume: Mapping[str, Any] | None = None,
    storage_class: Mapping[str, Any] | None = None,
) -> Claim:
    """A PersistentVolumeClaim. ``raw``: None if there is none; ``volume``, ``storage_class``: None if not known."""
    if raw is None:
        return Claim(name=name, exists=False, bound=False)
    spec = _mapping(raw.get("spec"))
    bound = _text(_mapping(raw.get("status")).get("phase")) == "Bound"
    required = _mapping(_mapping(_mapping((volume or {}).get("spec")).get("nodeAffinity")).get("required"))
    return Claim(
        name=name,
        deleting="deletionTimestamp" in _mapping(raw.get("metadata")),
        bound=bound,
        storage_class=_text(spec.get("storageClassName")),
        waits_for_pod=_waits_for_pod(spec, storage_class),
        volume=_text(spec.get("volumeName")),
        nodes=tuple(_mappings(required["nodeSelectorTerms"])) if "nodeSelectorTerms" in required else None,
    )


def requests(spec: Mapping[str, Any]) -> Amounts:
    """What a pod needs of a node, as kube-scheduler counts it (component-helpers, resource.PodRequests).

    The sum of the containers and sidecars, or an init container with the sidecars before it if that is more; and the
    pod's overhead.
    """
    total: dict[str, Decimal] = defaultdict(Decimal)
    for one in _mappings(spec.get("containers")):
        _add(total, _asked(one))
    sidecars: dict[str, Decimal] = defaultdict(Decimal)
    most: dict[str, Decimal] = {}
    for one in _mappings(spec.get("initContainers")):
        asked = _asked(one)
        if one.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = sidecars
        else:
            asked = {name: asked.get(name, Decimal(0)) + sidecars.get(name, 0) for name in {*asked, *sidecars}}
        most.update({name: max(amount, most.get(name, amount)) for name, amount in asked.items()})
    for name, amount in most.items():
        total[name] = max(total[name], amount)
    whole = {name: amount for name, amount in _asked(spec).items() if _is_of_pods(name)}
    total.update(whole)
    _add(total, _amounts(spec.get("overhead")))
    return {**{name: amount for name, amount in total.items() if amount}, "pods": Decimal(1)}


def _is_of_pods(resource: str) -> bool:
    """Whether ``spec.resources`` of a pod stands in for what its containers request of it."""
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def _asked(container: Mapping[str, Any]) -> Amounts:
    """The requests; a resource that has only a limit is requested like that."""
    resources = _mapping(container.get("resources"))
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _add(total: dict[str, Decimal], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] += amount


def _amounts(raw: Any) -> dict[str, Decimal]:
    found = ((str(name), quantity(amount)) for name, amount in _mapping(raw).items())
    return {name: amount for name, amount in found if amount is not None}


def _ports(spec: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for one in (*_mappings(spec.get("containers")), *_mappings(spec.get("initContainers"))):
        for port in _mappings(one.get("ports")):
            if isinstance(number := port.get("hostPort"), int) and number > 0:
                yield _text(port.get("protocol")) or "TCP", number


def _terms(raw: Any, namespace: str) -> Iterator[NeighbourTerm]:
    for one in _mappings(_mapping(raw).get(REQUIRED)):
        names = {_text(name) for name in one.get("namespaces") or ()} or {namespace}
        everywhere = one.get("namespaceSelector") is not None
        selector = one.get("labelSelector")
        yield NeighbourTerm(
            None if selector is None else _mapping(selector),
            _text(one.get("topologyKey")),
            None if everywhere else frozenset(names),
        )


def _claims(spec: Mapping[str, Any], pod_name: str) -> Iterator[str]:
    for volume in _mappings(spec.get("volumes")):
        if "persistentVolumeClaim" in volume:
            yield _text(_mapping(volume["persistentVolumeClaim"]).get("claimName"))
        elif "ephemeral" in volume:
            yield f"{pod_name}-{_text(volume.get('name'))}"


def _unread(spec: Mapping[str, Any]) -> Iterator[str]:
    spread = _mappings(spec.get("topologySpreadConstraints"))
    if any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spread):
        yield "topologySpreadConstraints"
    if spec.get("resourceClaims"):
        yield "resourceClaims"


def _waits_for_pod(spec: Mapping[str, Any], storage_class: Mapping[str, Any] | None) -> bool | None:
    if not spec.get("storageClassName"):
        return False
    return None if storage_class is None else storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _seconds(raw: Any) -> float:
    try:
        return datetime.fromisoformat(_text(raw)).timestamp()
    except ValueError:
        return 0.0


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _mappings(raw: Any) -> list[Mapping[str, Any]]:
    return [one for one in raw if isinstance(one, dict)] if isinstance(raw, list | tuple) else []


def _texts(raw: Any) -> dict[str, str]:
    return {key: value for key, value in _mapping(raw).items() if isinstance(value, str)}


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""
