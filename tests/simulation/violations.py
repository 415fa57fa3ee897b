"""What an invariant raises when it doesn't hold."""

from __future__ import annotations


class ViolationError(AssertionError):
    """An invariant doesn't hold."""


NOT_MENDED = frozenset({9, 10})
"""Invariants that the core doesn't keep yet. It is empty one day, and goes then."""


def require(holds: object, number: int, text: str) -> None:
    """Invariant ``number`` says that ``text`` can't be."""
    if not holds and number not in NOT_MENDED:
        raise ViolationError(f"invariant {number}: {text}")
