"""What a mutant is: a deliberate mistake, as a small patch of the source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patch:
    """In this file this text, which is there exactly once, becomes another."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """One deliberate mistake, in words and in code."""

    name: str
    patches: tuple[Patch, ...]
    told: bool = False
    """It changes only what people are told: the scenarios' golden texts may catch it. Everything else must break an
    invariant, or disagree with an oracle."""


def one(name: str, file: str, old: str, new: str, *, told: bool = False) -> Mutant:
    """A mutant of one patch."""
    return Mutant(name, (Patch(file, old, new),), told)
