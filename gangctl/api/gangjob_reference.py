"""The reference of the GangJob's fields, as Markdown, made from the types.

``python -m gangctl.api.gangjob_reference`` prints it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from gangctl.api.crd import ONLY, RULES, Schema, gangjob_schema
from gangctl.api.model import docstrings
from gangctl.api.names import API_VERSION, KIND
from gangctl.api.problems import allowed_values
from gangctl.api.reasons import Reason
from gangctl.api.status import ConditionType, GangPhase

_INTRODUCTION: Final = f"""\
<!-- Made by `python -m gangctl.api.gangjob_reference` from the types in gangctl/api. Change those. -->

# The {KIND} reference

All fields of `{API_VERSION}`, `kind: {KIND}`, as in `kubectl explain gangjob.spec`. Fields whose names end in
`Seconds` are whole seconds, up to 31536000 if no other bound is named; times are in UTC, such as
2026-01-31T12:00:00Z. An absent field is off or has its default; null is not a value. Fields marked \\* are required
in their object. A manifest that breaks a rule is rejected with the path of the field. What the status keeps for the
controller alone has one row here; `kubectl explain gangjob.status.lineage`, for example, has its fields.
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
    lines: list[str] = []
    if "description" in node and (path.endswith("]") or "." not in path):  # the row of another object has it already
        lines += [node["description"], ""]
    lines += ["| field | description |", "| --- | --- |"]
    for name, field in node["properties"].items():
        mark = "\\*" if name in node.get("required", ()) else ""
        kind = _type(field) if path.startswith("spec") else _kind(field)
        text = f"*{kind}*: {field['description']}" if "description" in field else f"*{kind}*"
        lines.append(f"| `{name}`{mark} | {_cell(text)} |")
    if node.get("x-kubernetes-preserve-unknown-fields"):
        lines.append("| ... | All other Kubernetes fields are kept as written. |")
    said = {field[ONLY] for field in node["properties"].values() if ONLY in field}
    rules = [rule["message"] for rule in node.get(RULES, ()) if rule["message"] not in said]
    if rules:
        lines += ["", "Rules:", "", *(f"- {_rule(rule)}." for rule in rules)]
    return "\n".join([*lines, ""])


def _rule(error: str) -> str:
    """The rule that an error names: "two rules have the same name" breaks the rule that no two may."""
    return re.sub(r"^two (.+) have ", r"no two \1 may have ", error)


def _type(field: Schema) -> str:
    text = allowed_values(field)
    if field["type"] == "array" and field["items"]["type"] != "object":
        text += f", each {allowed_values(field['items'])}"
    return re.sub(r"^an? |^one of | to 31536000$", "", text)


def _kind(field: Schema) -> str:
    """The type alone: only the controller writes a status, so its limits are of no use to a user."""
    match field:
        case {"enum": values}:
            return ", ".join(str(value) or "empty" for value in values)
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


def meanings(kind: type[StrEnum]) -> dict[str, str]:
    """Each value of an enum with the sentence that stands below it in the source."""
    return {kind[name].value: " ".join(text.split()) for name, text in docstrings(kind).items()}


if __name__ == "__main__":
    sys.stdout.write(reference())
