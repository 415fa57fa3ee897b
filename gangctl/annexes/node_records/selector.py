"""Select nodes by their labels as kubectl does, and by what a node says of itself under pseudo-labels. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gangctl.core.facts.node_affinity import holds
from gangctl.kubernetes.objects import Node

PSEUDO: Final = ("node.kubelet", "node.kernel", "node.image", "node.runtime")
"""Versions of the kubelet, the kernel, the operating system's image and the container runtime."""
_KEY: Final = r"[\w./-]+"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<key>{_KEY})\s*(?:(?P<sign>!=|==?)\s*(?P<value>[^,()=!]*)|(?P<word>in|notin)\s*\((?P<values>[^()]*)\))"
    rf"|(?P<absent>!?)\s*(?P<only>{_KEY}))\s*(?:,(?=.)|$)"
)


def parse(text: str) -> tuple[Mapping[str, Any], ...]:
    """The requirements of a selector such as ``pool=a, driver notin (570,575), !spot``; all must hold.

    Raises:
        ValueError: it isn't a selector.
    """
    found, end = list[Mapping[str, Any]](), 0
    while end < len(text) or not found:
        term = _TERM.match(text, end)
        if term is None:
            raise ValueError(f"{text!r:.200} isn't a selector: use KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY or !KEY")
        found.append(_requirement(term))
        end = term.end()
    return tuple(found)


def _requirement(term: re.Match[str]) -> Mapping[str, Any]:
    if term["only"]:
        return {"key": term["only"], "operator": "DoesNotExist" if term["absent"] else "Exists"}
    is_in = term["word"] == "in" if term["word"] else term["sign"] != "!="
    values = [one.strip() for one in (term["values"] or "").split(",")] if term["word"] else [term["value"].strip()]
    return {"key": term["key"], "operator": "In" if is_in else "NotIn", "values": values}


def selected(nodes: Iterable[Node], requirements: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The names of the nodes for which all of them hold."""
    asked = tuple(requirements)
    return frozenset(one.name for one in nodes if _holds(asked, labels(one)))


def labels(node: Node) -> Mapping[str, str]:
    """The labels of a node, with the pseudo-labels."""
    said = zip(PSEUDO, (node.kubelet, node.kernel, node.image, node.runtime), strict=True)
    return {**node.labels, **dict(said)}


def _holds(asked: tuple[Mapping[str, Any], ...], its: Mapping[str, str]) -> bool:
    return all(holds(one, its.get(one["key"])) for one in asked)
