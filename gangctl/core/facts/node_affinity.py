"""Node affinity and quantities, as Kubernetes reads them.

Node affinity and taints: whether a node is one that a pod's spec lets it land on.

The rule: as kube-scheduler has it. The required terms are alternatives, the requirements of a term must all hold, and
a term without any holds for no node. A taint keeps pods off unless it is tolerated or only a preference.

Quantities of the Kubernetes API: ``500m`` CPUs, ``16Gi`` of memory, 8 devices.

Source: Kubernetes, apimachinery, pkg/api/resource/quantity.go.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

# Node affinity and taints


REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_KEEP_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Print it as kube-scheduler does, and as `kubectl taint` takes it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


def is_selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels matches a pod's nodeSelector."""
    return all(labels.get(key) == value for key, value in selector.items())


def has_required_affinity(affinity: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node of this name and with these labels matches the required node affinity of a pod.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: the affinity is not valid, or compares a label by number that
            is none.
    """
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED)
    return required is None or matches_any(required["nodeSelectorTerms"], name, labels)


def matches_any(terms: Iterable[Mapping[str, Any]], name: str, labels: Mapping[str, str]) -> bool:
    """Whether one of the terms of a node selector holds. Raises as :func:`has_required_affinity`."""
    return any(_matches(term, name, labels) for term in terms)


def untolerated_taints(tolerations: Iterable[Mapping[str, Any]], taints: Iterable[Taint]) -> list[Taint]:
    """The taints that keep a pod with these tolerations off."""
    known = list(tolerations)
    return [taint for taint in taints if taint.effect in _KEEP_OFF and not any(_covers(one, taint) for one in known)]


def holds(requirement: Mapping[str, Any], value: str | None) -> bool:
    """Whether a requirement holds for the value of its key; None = the node or pod doesn't have it."""
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(requirement["values"][0])
        case "Lt":
            return value is not None and int(value) < int(requirement["values"][0])
        case _:
            return True


def _matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    asked: list[tuple[Mapping[str, Any], Callable[[str], str | None]]] = [
        *((one, labels.get) for one in term.get("matchExpressions") or ()),
        *((one, {"metadata.name": name}.get) for one in term.get("matchFields") or ()),
    ]
    return bool(asked) and all(holds(one, value_of(one["key"])) for one, value_of in asked)


def _covers(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    operator = toleration.get("operator") or "Equal"
    if (toleration.get("key") or "") not in {taint.key, "" if operator == "Exists" else taint.key}:
        return False
    return operator != "Equal" or (toleration.get("value") or "") == taint.value


# Quantities of the Kubernetes API


_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d{1,3}))")
_LONGEST: Final = 64
"""Characters. A tenant can write more into a template; the search takes a time that grows with their square."""
_BINARY: Final = {f"{prefix}i": Decimal(1024) ** at for at, prefix in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {prefix: Decimal(1000) ** at for at, prefix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}


def quantity(text: Any) -> Decimal | None:
    """The value of a quantity; None if the text isn't one."""
    match = _QUANTITY.fullmatch(str(text)[: _LONGEST + 1])
    if match is None or match.end() > _LONGEST:
        return None
    number, suffix, exponent = match.groups()
    if exponent is not None:
        return Decimal(number).scaleb(int(exponent))
    return Decimal(number) * (_BINARY.get(suffix) or _DECIMAL[suffix])
