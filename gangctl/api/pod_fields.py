"""The fields of Kubernetes' pod templates, so that a misspelt one is found before a cluster drops it without a word.

The rule: gangctl passes a template on as it is written, because a cluster may be newer. So a field that this release
doesn't know must not be refused, unless it is nearly the name of one that is known and absent. ``pod_fields.json`` has
the fields, made from the sources of Kubernetes (``make pod-fields``).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final

from gangctl.api.yaml_documents import Location

TEMPLATE: Final = "PodTemplateSpec"
_NEARLY: Final = 0.8
_LETTERS: Final = 2
"""More of them make another name: ``restartPolicyRules`` was a new field once, and no misspelt ``restartPolicy``."""


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field of a template that Kubernetes didn't have when this release was made."""

    location: Location
    meant: str
    """The field that it is nearly; empty if there is none."""


@cache
def release() -> str:
    """The release of Kubernetes whose fields are known, such as ``1.37``."""
    found: str = _table()["release"]
    return found


def unknown_fields(template: Any, location: Location) -> Iterator[UnknownField]:
    """The fields of a pod template that are not known. A value of another type than expected is left to Kubernetes.

    Args:
        template: the template as JSON values.
        location: where it is.
    """
    yield from _unknown(template, location, TEMPLATE)


def _unknown(value: Any, at: Location, kind: str) -> Iterator[UnknownField]:
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _unknown(one, (*at, index), kind)
    elif isinstance(value, dict):
        known: Mapping[str, str] = _table()["fields"][kind]
        for name, one in value.items():
            if name not in known:
                yield UnknownField((*at, name), _meant(name, [field for field in known if field not in value]))
            elif known[name]:
                yield from _unknown(one, (*at, name), known[name])


def _meant(name: str, absent: list[str]) -> str:
    same = (field for field in absent if flat(field) == flat(name))
    near = [field for field in absent if abs(len(field) - len(name)) <= _LETTERS]
    return next(same, "") or next(iter(get_close_matches(name, near, 1, _NEARLY)), "")


def flat(name: str) -> str:
    """The letters of a name: ``pod_ip`` and ``pod-ip`` are meant as ``podIP``."""
    return name.replace("_", "").replace("-", "").lower()


@cache
def _table() -> dict[str, Any]:
    """``release``, and ``fields``: type -> field -> type of its value or items; empty where anything may stand."""
    table: dict[str, Any] = json.loads(files(__package__).joinpath("pod_fields.json").read_text("utf-8"))
    return table
