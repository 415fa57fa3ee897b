"""Decide which state a process holds whole, and who gives it to whom. Pure.

The rule: ``step`` is that of the whole state, and None while the state changes. A process offers it as it parks, and
only if it belongs to this attempt's history::

    offered  <=>  the state is whole, and this attempt has begun from it or restores just this step from processes

The core then takes the newest step that was offered: some ranks may have made step N + 1 and others not. A rank has the
restore point if it holds that very step; each other rank gets the state from one that has it, and none may go on from
its own. So all ranks go on from equal states, or from a checkpoint.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from gangclient._client import Restore


class Holding:
    """The step of the state that this process holds."""

    def __init__(self) -> None:
        """Without a state."""
        self.step: Optional[int] = None
        self._begun = 0

    def has(self, restore: Optional[Restore], tier: str) -> bool:
        """Whether the attempt restores what this process holds."""
        return restore is not None and restore.tier == tier and restore.step == self.step

    def begin(self, attempt: int, step: int) -> None:
        """The attempt begins from this step, which the state has now."""
        self._begun, self.step = attempt, step

    def offered(self, attempt: int, restore: Optional[Restore], tier: str) -> Optional[int]:
        """The step to offer as the attempt is left. A state of another history is forgotten."""
        if self._begun != attempt and not self.has(restore, tier):
            self.step = None
        return self.step


def givers(having: Sequence[bool]) -> Dict[int, int]:
    """Who gives the state to each rank that doesn't have it: rank -> rank. ValueError: none has it."""
    sources: List[int] = [rank for rank, has in enumerate(having) if has]
    if not sources:
        raise ValueError("no rank has it")
    lacking = [rank for rank, has in enumerate(having) if not has]
    return {rank: sources[at % len(sources)] for at, rank in enumerate(lacking)}
