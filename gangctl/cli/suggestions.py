"""Hints for a name that does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def hint(name: str, known: Sequence[str], if_none: str = "") -> str:
    """Similar names if there are any, else the first ten; ``if_none`` where nothing is known."""
    near = get_close_matches(name, known, 3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known[:10])}" if known else if_none
