"""The question which checkpoint steps are in a directory, and its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """A Shared checkpoint tier that is a directory."""

    name: str
    directory: str
    pattern: str
    """Name of a step's folder, or of its file, with ``{step}``; a * is any text."""
    complete: str = ""
    """The file in the folder that marks it complete; empty = a step is a file, and complete when it is there."""


MAX_FOUND = 64
"""At most so many newest complete steps of a tier are listed: no restart goes further back."""


@dataclass(frozen=True)
class Scan:
    """A stateless query to one member, after every pod has stopped: which complete steps can it see?"""

    attempt: int
    tiers: tuple[Tier, ...]
    timeout_ms: int = 30_000


@dataclass(frozen=True)
class Found:
    """A complete step in a scanned tier."""

    tier: str
    step: int
    path: str
    marker: str
    """Identity of what marks it complete. It changes when the step is written again."""


@dataclass(frozen=True)
class Scanned:
    """The answer to a Scan: per tier at most :data:`MAX_FOUND` newest complete steps, newest first."""

    attempt: int
    pod: str
    found: tuple[Found, ...] = ()
    error: str = ""


def step_name(pattern: str) -> re.Pattern[str]:
    """What the names of a tier's steps match; the first group is the step.

    Raises:
        ValueError: the pattern isn't a name with ``{step}`` once.
    """
    if pattern.count("{step}") != 1 or "/" in pattern:
        raise ValueError(f"pattern {pattern!r}: expected a name with {{step}} once")
    # A * is any text, of which no digit belongs to the number beside it.
    before, after = (re.escape(text).replace(r"\*", ".*") for text in pattern.split("{step}"))
    before += "(?<![0-9])" if before.endswith("*") else ""
    after = f"(?![0-9]){after}" if after.startswith(".*") else after
    # 18 digits are below 2**63, which is what a message can carry.
    return re.compile(f"{before}([0-9]{{1,18}}){after}")
