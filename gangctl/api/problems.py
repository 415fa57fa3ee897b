"""Problems of a manifest in words: where, what was found, what is allowed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gangctl.api.crd import REFUSED_KEY

_SHOWN: Final = 60
"""Maximum characters of a value in a message."""
_LISTED: Final = 13
"""Maximum number of enum values in a message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a manifest."""

    path: str
    """As in YAML: ``spec.roles[0].replicas``; empty = the whole document."""
    found: str = ""
    expected: str = ""
    why: str = ""
    """A sentence beyond found and expected: the violated rule, or a similar name."""
    line: int | None = None
    """Line in the file, from 1."""

    def __str__(self) -> str:
        parts = [f"found {self.found}" if self.found else "", f"expected {self.expected}" if self.expected else ""]
        said = ", ".join(part for part in parts if part)
        return ": ".join(part for part in (self.path, said, self.why) if part)


class ManifestError(ValueError):
    """A manifest is invalid. The message has one line for each problem."""

    def __init__(self, filename: str, problems: Iterable[Problem]) -> None:
        self.filename = filename
        self.problems = tuple(sorted(problems, key=lambda one: (one.line or 0, one.path)))
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> Iterable[str]:
        for one in self.problems:
            place = self.filename if one.line is None else f"{self.filename}:{one.line}"
            yield f"{place}: {one}"


def path_of(location: Iterable[str | int]) -> str:
    """``spec.roles[0].name`` for ("spec", "roles", 0, "name")."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shorten_value(value: Any) -> str:
    """A value for a message: short and without line breaks."""
    match value:
        case dict():
            return "a map"
        case list():
            return f"a list of {len(value)} {'item' if len(value) == 1 else 'items'}"
        case _:
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def allowed_values(node: Mapping[str, Any]) -> str:
    """The values that the schema of a field allows, as a noun phrase."""
    match node:
        case {"enum": values}:
            good = [str(one) for one in values if one not in node.get(REFUSED_KEY, ())]
            more = f" and {len(good) - _LISTED} more" if len(good) > _LISTED else ""
            return f"one of {', '.join(good[:_LISTED])}{more}" if len(good) > 1 else json.dumps(good[0])
        case {"type": "integer"}:
            return f"an integer{_range(node.get('minimum'), node.get('maximum'))}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "array"}:
            return f"a list{_amount(node.get('minItems', 0), node.get('maxItems'), 'items')}"
        case {"type": "object"}:
            return "a map"
        case {"format": "date-time"}:
            return "a time such as 2026-01-31T12:00:00Z"
        case _:
            pattern = f" that matches `{node['pattern']}`" if "pattern" in node else ""
            return f"a string{_amount(node.get('minLength', 0), node.get('maxLength'), 'characters')}{pattern}"


def _range(low: int | None, high: int | None) -> str:
    match low, high:
        case None, None:
            return ""
        case _, None:
            return f", at least {low}"
        case None, _:
            return f", at most {high}"
        case _:
            return f" from {low} to {high}"


def _amount(low: int, high: int | None, of: str) -> str:
    if high is None:
        return f" of at least {low} {of}" if low else ""
    return f" of {low} to {high} {of}" if low else f" of at most {high} {of}"
