"""How many steps a restart has lost, in words: a range where the framework reports only some of its steps."""

from __future__ import annotations


def lost_steps(steps: int, at_most: int | None) -> str:
    """The number with its noun, as ``1 step``, ``7 steps`` or ``0 to 9 steps``. ``at_most``: None if it is exact."""
    if at_most is not None and at_most != steps:
        return f"{steps} to {at_most} steps"
    return f"{steps} step{'' if steps == 1 else 's'}"
