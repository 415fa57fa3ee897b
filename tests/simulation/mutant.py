"""Mutants: deliberate mistakes that the tests must catch, as ``mutants/*.txt`` lists them.

An entry says the mistake in words, then in brackets the place (see ``mutant_places.py``), and what becomes what there::

    the barrier is short by one pod [decide_gathering]
    - blocking or missing
    + len(blocking) > 1 or missing

A mistake in several places has further lines with a place in brackets. Without lines that begin with ``+``, what stands
there is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutant_places import Change

LISTS = Path(__file__).with_name("mutants")
TOLD = "told"
"""The list of mistakes that change only what people are told."""


@dataclass(frozen=True)
class Mutant:
    """One deliberate mistake, in words and in code."""

    name: str
    changes: tuple[Change, ...] = ()
    told: bool = False
    """It changes only what people are told: the scenarios' golden texts may catch it. Everything else must break an
    invariant, or disagree with an oracle."""


def read(text: str, *, told: bool = False) -> list[Mutant]:
    """Return the mutants of one list."""
    blocks = [block for block in text.split("\n\n") if block.strip() and not block.startswith("#")]
    return [_mutant(block.strip("\n").splitlines(), told=told) for block in blocks]


def _mutant(lines: list[str], *, told: bool) -> Mutant:
    name, changes = "", list[Change]()
    for line in lines:
        match line[:2]:
            case "- " | "+ " as sign:
                last = changes.pop()
                old = [last.old, line[2:]] if sign == "- " else [last.old]
                new = [last.new, line[2:]] if sign == "+ " else [last.new]
                changes.append(Change(last.place, "\n".join(filter(None, old)), "\n".join(filter(None, new))))
            case _:
                words, place = re.fullmatch(r"(.*?) ?\[(.+)\]", line).groups()  # type: ignore[union-attr]
                name = name or words
                changes.append(Change(place, "", ""))
    return Mutant(name, tuple(changes), told)


MUTANTS = tuple(
    mutant for path in sorted(LISTS.glob("*.txt")) for mutant in read(path.read_text(), told=path.stem == TOLD)
)
