"""Decide which steps stay in memory, and which rank holds whose copies. Pure.

    kept(r, s) = rank r has its part of step s whole and registered, and so has its peer the copy
    safe(s)    = kept(r, s) for every rank r
    dead(s)    = some rank has skipped s

The rule: a rank drops a step that it has kept only when a newer one is safe, or when the step is dead. It has room for
two, {the newest safe one, one that may become safe}, and skips every other. A rank that has skipped a step must never
keep it. So from the first safe step on, there is always a step that every rank can load.

Copies go round a ring of members in the order of their nodes: that of a rank goes to the rank with the same place in a
member of another node, and each member holds as many copies as it has parts, if all nodes have equally many members. If
there is one node only, it is another member's; if there is one member only, there is no copy.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

REMEMBERED = 64
"""Dead steps that are remembered: a rank may come to one after its verdict."""


class StepVerdict(NamedTuple):
    """The verdict on a step, for all ranks alike."""

    step: int
    safe: bool
    """Otherwise it is dead."""

    def ends(self, step: int) -> bool:
        """Return whether a step need not be kept any more."""
        return step < self.step if self.safe else step == self.step


class Keeper:
    """The steps of one rank."""

    def __init__(self, restored: Optional[int]) -> None:
        """Begin an attempt, which has restored a step from this memory (None: it has not)."""
        self.safe = restored
        self.pending: Optional[int] = None
        self._dead: List[int] = []

    def takes(self, step: int) -> bool:
        """Return whether the rank keeps this step. If so, it is pending; otherwise, the rank has skipped it."""
        if self.pending is not None or step in self._dead:
            return False
        self.pending = step
        return True

    def is_dead(self, step: int) -> bool:
        """Return whether no rank will need this step."""
        return step in self._dead

    def take_verdict(self, verdict: StepVerdict) -> None:
        if verdict.safe:
            self.safe = verdict.step
        else:
            self._dead = [*self._dead, verdict.step][-REMEMBERED:]
        if self.pending == verdict.step:
            self.pending = None


class Ledger:
    """The steps that ranks have kept and skipped; at rank 0."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._kept: Dict[int, Set[int]] = {}
        self._judged: Dict[int, StepVerdict] = {}

    def note(self, rank: int, step: int, *, kept: bool) -> Optional[StepVerdict]:
        """The verdict, if there is one by now that the others don't know."""
        if step in self._judged:
            return None
        if kept:
            having = self._kept.setdefault(step, set())
            having.add(rank)
            if len(having) < self._ranks:
                return None
        self._kept.pop(step, None)
        verdict = StepVerdict(step, safe=kept)
        self._judged[step] = verdict
        for old in sorted(self._judged)[:-REMEMBERED]:
            del self._judged[old]
        return verdict


class Where(NamedTuple):
    """The place of a rank."""

    rank: int
    member: str
    node: str


def peers(ranks: List[Where]) -> Dict[int, Optional[int]]:
    """Rank -> the rank that holds its copy."""
    members: Dict[Tuple[str, str], List[int]] = {}
    for one in sorted(ranks):
        members.setdefault((one.node, one.member), []).append(one.rank)
    ring = sorted(members)
    a_node = max(Counter(node for node, _ in ring).values())
    chosen: Dict[int, Optional[int]] = {}
    for at, (node, member) in enumerate(ring):
        following = [ring[(at + step) % len(ring)] for step in (*range(a_node, len(ring)), *range(1, a_node))]
        target = next((one for one in following if one[0] != node), following[-1] if len(ring) > 1 else None)
        if len({name for name, _ in ring}) == 1 and len(ring) > 1:
            target = ring[(at + 1) % len(ring)]
        for place, rank in enumerate(members[node, member]):
            theirs = [] if target is None else members[target]
            chosen[rank] = theirs[place % len(theirs)] if theirs else None
    return chosen
