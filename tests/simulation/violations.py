"""What an invariant raises when it doesn't hold."""

from __future__ import annotations


class ViolationError(AssertionError):
    """An invariant doesn't hold."""


def require(holds: object, number: int, text: str) -> None:
    """Invariant ``number`` says that ``text`` can't be."""
    if not holds:
        raise ViolationError(f"invariant {number}: {text}")
