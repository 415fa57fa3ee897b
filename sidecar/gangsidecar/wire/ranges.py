"""Sets of small numbers as text, as in a Job's ``completedIndexes``: ``0-511,513``."""

from __future__ import annotations

from collections.abc import Iterable


def to_ranges(numbers: Iterable[int]) -> str:
    """The text of a set; empty for the empty set. Equal sets have equal texts."""
    parts: list[str] = []
    first = last = -1
    for number in (*sorted(set(numbers)), -1):
        if number == last + 1 and first >= 0:
            last = number
            continue
        if first >= 0:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return ",".join(parts)


def from_ranges(text: str, limit: int) -> frozenset[int]:
    """The numbers below ``limit`` that the text names. What is no range is skipped: reading must never fail."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if all(end.isascii() and end.isdigit() and len(end) <= 9 for end in ends):  # noqa: PLR2004 - no huge number
            found.update(range(int(ends[0]), min(int(ends[1]) + 1, limit)))
    return frozenset(found)
