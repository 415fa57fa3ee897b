"""Decide which state a process holds whole, and who gives it to whom. Pure.

The rule: ``step`` is that of the whole state, and None while the state changes. A process offers it as it parks, and
only if it belongs to this attempt's history::

    offered  <=>  the state is whole, and this attempt has begun from it or restores just this step from processes

The core then takes the newest step that was offered: some ranks may have made step N + 1 and others not. A rank has the
restore point if it holds that very step, since the newest attempt of those that do: one that had no part in later
attempts may hold the same step of another history. Each other rank gets the state from one that has it, and none may go
on from its own. So all ranks go on from equal states, or from a checkpoint.
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

    def since(self, restore: Optional[Restore], tier: str) -> int:
        """The attempt from which this process has the state of the step that is restored; 0 if it doesn't hold it."""
        return self._begun if restore is not None and restore.tier == tier and restore.step == self.step else 0

    def begin(self, attempt: int, step: int) -> None:
        """The attempt begins from this step, which the state has now."""
        self._begun, self.step = attempt, step

    def offered(self, attempt: int, restore: Optional[Restore], tier: str) -> Optional[int]:
        """The step to offer as the attempt is left. A state of another history is forgotten."""
        if self._begun != attempt and not self.since(restore, tier):
            self.step = None
        return self.step


def givers(since: Sequence[int]) -> Dict[int, int]:
    """Who gives the state to each rank that doesn't have it: rank -> rank. ValueError: none has it.

    ``since``: of each rank, as :meth:`Holding.since` has it.
    """
    newest = max(since)
    if not newest:
        raise ValueError("no rank has it")
    sources: List[int] = [rank for rank, one in enumerate(since) if one == newest]
    lacking = [rank for rank, one in enumerate(since) if one != newest]
    return {rank: sources[at % len(sources)] for at, rank in enumerate(lacking)}
