"""The page of the lifecycle, as Markdown, made from the table of transitions.

``python -m tests.pages.lifecycle`` prints it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from inspect import getdoc, getmembers, isfunction
from typing import Final

import gangctl.core
from gangctl.api.status import ENDED, GangPhase
from gangctl.core.lifecycle.table import TRANSITIONS, Advance, Transition

_INTRODUCTION: Final = """\
<!-- Made by `python -m tests.pages.lifecycle` from gangctl/core/lifecycle/table.py. Change that. -->

# The lifecycle of a gang

A gang has a phase (`status.phase`) and an attempt (`status.attempt`). The controller changes them only by the
transitions below. The attempt never goes down, and no transition leaves Succeeded or Failed.
"""
_DIAGRAM: Final = """\
The diagram omits `fail_at_deadline` and `suspend`, which every phase with pods has.
"""
_TABLE: Final = """\
## Transitions

In one of the phases *from*, when the condition holds, the gang goes to the phase *to*, in the same attempt or in the
next. The first that applies wins: while Running, success; in every phase the active deadline, then suspension, then
the phase's own.
"""
_FUNCTIONS: Final = """\
## Conditions

The conditions name these functions:
"""


def lifecycle_page() -> str:
    """The text of ``docs/lifecycle.md``."""
    diagram = ["```mermaid", "stateDiagram-v2", *_edges(), "```", ""]
    rows = [
        "| transition | from | to | attempt | when |",
        "| --- | --- | --- | --- | --- |",
        *map(_row, TRANSITIONS),
        "",
    ]
    functions = ["| function | file | result |", "| --- | --- | --- |", *_functions(), ""]
    return "\n".join([_INTRODUCTION, *diagram, _DIAGRAM, _TABLE, *rows, _FUNCTIONS, *functions])


def condition_names(row: Transition) -> list[str]:
    """The names in backticks in the condition of a transition."""
    return re.findall(r"`([^`]+)`", row.when)


def functions() -> dict[str, tuple[str, str]]:
    """Name -> (file, first line of the docstring) of every function of the core's policies and facts."""
    found: dict[str, tuple[str, str]] = {}
    for module in pkgutil.walk_packages(gangctl.core.__path__, "gangctl.core."):
        for name, function in getmembers(importlib.import_module(module.name), isfunction):
            if function.__module__ == module.name:
                about = (getdoc(function) or "").partition("\n")[0]
                found[name] = (f"{module.name.replace('.', '/')}.py", about)
    return found


def _edges() -> Iterator[str]:
    labels: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        for source in row.sources:
            if row.name not in {"fail_at_deadline", "suspend"}:
                label = f"{row.name} (attempt +1)" if row.attempt is Advance.NEXT else row.name
                labels.setdefault((_state(source), _state(row.target)), []).append(label)
    for (begin, end), names in labels.items():
        yield f"    {begin} --> {end}: {', '.join(names)}"
    for phase in ENDED:
        yield f"    {_state(phase)} --> [*]"


def _state(phase: GangPhase) -> str:
    return phase.value or "[*]"


def _row(row: Transition) -> str:
    sources = ", ".join(source.value or "(new)" for source in row.sources)
    return f"| `{row.name}` | {sources} | {row.target.value} | {row.attempt.value} | {row.when} |"


def _functions() -> Iterator[str]:
    known = functions()
    for name in sorted(
        {name for row in TRANSITIONS for name in condition_names(row)} & set(known) - {row.name for row in TRANSITIONS}
    ):
        file, about = known[name]
        yield f"| `{name}` | `{file}` | {about.replace('``', '`')} |"


if __name__ == "__main__":
    sys.stdout.write(lifecycle_page())
