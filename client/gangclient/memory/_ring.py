"""Who holds whose copies: a ring of members in the order of their nodes. Pure.

The rule: the copy of a rank goes to the rank with the same place in a member of another node, and each member holds as
many copies as it has parts, if all nodes have equally many members. If there is one node only, it is another member's;
if there is one member only, there is no copy.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Tuple


class Where(NamedTuple):
    """Where a rank runs."""

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
