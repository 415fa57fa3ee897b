"""The reference of the GangJob's fields, as Markdown, made from the types.

``python -m tests.pages.gangjob`` prints it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from gangctl.api.crd import ONLY, REFUSED_KEY, RULES, Schema, gangjob_schema
from gangctl.api.model import YEAR, meanings
from gangctl.api.names import API_VERSION, KIND
from gangctl.api.reasons import Reason
from gangctl.api.status import ConditionType, GangPhase

_INTRODUCTION: Final = f"""\
<!-- Made by `python -m tests.pages.gangjob` from the types in gangctl/api. Change those. -->

# The {KIND} reference

All fields of `{API_VERSION}`, `kind: {KIND}`, as in `kubectl explain gangjob.spec`. Fields marked \\* are required in
their object, or with the type that they belong to. An absent field is off, empty or has its default; null is not a
value. A manifest that breaks a rule is rejected. Fields whose names end in `Seconds` are at most {YEAR} if no
other bound is named. Times are in UTC, such as 2026-01-31T12:00:00Z. What the status keeps for the controller alone has
one row here; for its fields run, for example, `kubectl explain gangjob.status.lineage`.
"""

KEPT: Final = {
    *(
        "awaited",
        "awaitedAll",
        "completedStep",
        "fencing",
        "finished",
        "ledger",
        "lineage",
        "recordedSteps",
        "recreated",
    ),
    *("refusal", "replaced", "restartFrom", "said", "stepGaps", "warning"),
}
"""What the status keeps for the controller's own decisions: each has a row, and no section."""
_OFF: Final = re.compile(r" (If absent, (there is no limit|it is kept)|Default: (empty|false))\.")
"""What the introduction says of all absent fields."""
_LISTED: Final = 15
"""Maximum number of enum values in a row: all reasons, and not all signals."""

_REASONS: Final = f"""\
## Reasons

[Faults](faults.md#by-reason) lists the reasons of faults, [Events](events.md) all other reasons of conditions and
Events, except `{Reason.HELD}`:\
"""


def reference() -> str:
    """The text of ``docs/reference/gangjob.md``."""
    schema = gangjob_schema()
    parts = [_INTRODUCTION]
    for name in ("spec", "status"):
        sections: dict[str, list[str]] = {}
        for path, node in _objects(schema["properties"][name], name):
            sections.setdefault(_section(path, node), []).append(f"`{path}`")
        parts += [f"## {', '.join(paths)}\n\n{text}" for text, paths in sections.items()]
    parts.append(_values("Phases", "Values of `status.phase`.", GangPhase))
    parts.append(_values("Conditions", "Types in `status.conditions`.", ConditionType))
    parts.append(f"{_REASONS} {meanings(Reason)[Reason.HELD]}\n")
    return "\n".join(parts)


def _objects(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """All objects with fields from here on, each before what is in it."""
    if node["type"] == "array":
        yield from _objects(node["items"], f"{path}[]")
    elif "properties" in node:
        yield path, node
        for name, field in node["properties"].items():
            if not (path.startswith("status") and name in KEPT):
                yield from _objects(field, f"{path}.{name}")


def _section(path: str, node: Schema) -> str:
    lines = ["| field | description |", "| --- | --- |"]
    for name, field in node["properties"].items():
        mark = "\\*" if name in node.get("required", ()) else ""
        kind = _type(field) if path.startswith("spec") else _kind(field)
        text = _OFF.sub("", field["description"])
        only = field.get(ONLY)
        if only is not None:  # of a union: its type says so in fewer words
            mark, kind = "\\*" if only.is_needed else "", f"{kind}; with {only.kinds}"
            text = text.replace(f" {only.description}", "")
        text = f"*{kind}*: {text}"
        lines.append(f"| `{name}`{mark} | {_cell(text)} |")
    if node.get("x-kubernetes-preserve-unknown-fields"):
        lines.append("| ... | All other Kubernetes fields are kept as written. |")
    only_with = [field[ONLY] for field in node["properties"].values() if ONLY in field]
    said = {rule for one in only_with for rule in (one.belongs, one.needs)}
    rules = [rule["message"] for rule in node.get(RULES, ()) if rule["message"] not in said]
    if rules:
        lines += ["", "Rules:", "", *(f"- {_rule(rule)}." for rule in rules)]
    return "\n".join([*lines, ""])


def _rule(error: str) -> str:
    """The rule that an error names, without its reason: "two rules have the same name" breaks that no two may."""
    return re.sub(r"^two (.+) have ", r"no two \1 may have ", re.sub(", (because|so that) .*$", "", error))


def _type(field: Schema) -> str:
    """The type with its limits, such as ``list (at most 8) of integer (1 to 64)``."""
    match field:
        case {"enum": values}:
            text = field.get("description", "")
            return "enum" if len(values) > 1 and all(f"{one}:" in text for one in _allowed(field)) else _enum(field)
        case {"type": "array", "items": {"type": "object"}}:
            return f"list{_limits(field, 'Items')}"
        case {"type": "array", "items": items}:
            return f"list{_limits(field, 'Items')} of {_type(items)}"
        case {"type": "object"}:
            return "map"
        case {"type": "string", "pattern": pattern}:
            length = "" if re.search(r"\{0,\d+\}", pattern) else _limits(field, "Length", " characters")
            return f"string{length} matching `{pattern}`"
        case {"type": "string"}:
            return f"string{_limits(field, 'Length', ' characters')}"
        case _:
            return f"{field['type']}{_limits(field, 'imum')}"


def _enum(field: Schema) -> str:
    values = _allowed(field)
    more = len(values) - _LISTED
    return ", ".join(values) if more <= 0 else f"{', '.join(values[:3])} and {len(values) - 3} more"


def _allowed(field: Schema) -> list[str]:
    return [str(one) for one in field["enum"] if one not in field.get(REFUSED_KEY, ())]


def _limits(field: Schema, of: str, unit: str = "") -> str:
    low, high = field.get(f"min{of}", 0), field.get(f"max{of}", YEAR)
    if high == YEAR:
        return f" (from {low})" if of == "imum" and f"max{of}" in field else ""
    return f" ({low} to {high}{unit})" if low or of == "imum" else f" (at most {high}{unit})"


def _kind(field: Schema) -> str:
    """The type alone: only the controller writes a status, so its limits are of no use to a user."""
    match field:
        case {"enum": values}:
            return "enum" if "" in values else ", ".join(map(str, values))  # the phases have a section
        case {"format": "date-time"}:
            return "time"
        case {"type": "array"}:
            return "list"
        case {"type": "object"}:
            return "map"
        case _:
            return str(field["type"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _values(title: str, introduction: str, kind: type[StrEnum]) -> str:
    lines = [f"## {title}", "", introduction, "", "| value | meaning |", "| --- | --- |"]
    for value, meaning in meanings(kind).items():
        lines.append(f"| {f'`{value}`' if value else 'empty'} | {_cell(meaning)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(reference())
