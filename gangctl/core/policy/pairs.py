"""Pairs: which members check each other, and who is bad if a pair fails.

A pair fails if one of its two members is bad, and can't say which. So members whose pair failed get another partner::

    round one   each member with one on another node; if their number is odd, or one node has more than half of them,
                some wait for a second turn and get a partner that had its own
    round two   each member that has passed in no pair, with one that passed, or, if there are too few, with each other
    cleared     members of a pair that passed
    bad         the only member of a failed pair that isn't cleared, and those of its node that aren't either
    unsure      members of a failed pair of which none is bad

A bad node among three or more is always named if it is the only one. Two bad ones must never accuse a third: nothing is
concluded from what is likely, nor from a result that is missing. After round two, the rest stays unsure.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]
"""Two members on different nodes. The first has rank 0."""
Nodes: TypeAlias = Mapping[int, Hashable]
"""The members that take part, with the node of each. Results are of these pods: a new pod starts from round one."""
Results: TypeAlias = Mapping[Pair, bool | None]
"""The pairs that are done: passed, failed, or None if their result is missing for good."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion from all results."""

    bad: tuple[int, ...] = ()
    """Members that are certainly bad, in order."""
    unsure: tuple[int, ...] = ()
    """Members of failed pairs that can't be told apart, or whose connection alone is bad."""
    untested: tuple[int, ...] = ()
    """Members without a result: no partner on another node, or nothing was heard of the pair."""


def joined(ends: Collection[bool | None]) -> bool | None:
    """The result of a pair from those of its two members: it failed if one says so, and passed if both say so."""
    return False if False in ends else None if None in ends else True


def next_pairs(nodes: Nodes, results: Results) -> tuple[Pair, ...]:
    """The pairs to run now, at the same time: each member is in one of them at most. Empty: the verdict is final."""
    first = first_round(nodes)
    for turn in first:
        if left := tuple(pair for pair in turn if pair not in results):
            return left
    started = set(chain.from_iterable(first))
    second = second_round(nodes, {pair: result for pair, result in results.items() if pair in started})
    return tuple(pair for pair in second if pair not in results)


def first_round(nodes: Nodes) -> tuple[tuple[Pair, ...], ...]:
    """The turns of round one: one, or two if some members wait for a partner."""
    sizes = Counter(nodes[member] for member in sorted(nodes))
    place = {node: at for at, (node, _) in enumerate(sizes.most_common())}
    order = sorted(nodes, key=lambda member: (place[nodes[member]], member))
    half = min(len(order) // 2, len(order) - max(sizes.values(), default=0))
    # Members of a node stand together, those of the largest first: over a distance of its size, nodes always differ.
    back = order[len(order) - half :]
    left = order[half : len(order) - half]
    turns = tuple(zip(order, back, strict=False)), tuple(zip(left, reversed(back), strict=False))
    return tuple(turn for turn in turns if turn)


def second_round(nodes: Nodes, results: Results) -> tuple[Pair, ...]:
    """The pairs of round two, from the results of round one. The first of a pair is the one in question."""
    cleared = _cleared(results)
    failures = Counter(nodes[member] for pair, result in results.items() if not result for member in pair)
    asked = {member for pair in results for member in pair if member not in cleared}
    # The prime suspects get the witnesses first; of the rest, those that are least suspect may clear each other.
    suspects = sorted(asked, key=lambda member: (-failures[nodes[member]], member))
    witnesses = sorted(cleared)
    pairs: list[Pair] = []
    alone: list[int] = []
    for suspect in suspects:
        if (found := _partner(nodes, suspect, witnesses, results)) is None:
            alone.append(suspect)
        else:
            witnesses.remove(found)
            pairs.append((suspect, found))
    alone.reverse()
    while alone:
        member = alone.pop(0)
        if (found := _partner(nodes, member, alone, results)) is not None:
            alone.remove(found)
            pairs.append((member, found))
    return tuple(pairs)


def verdict(nodes: Nodes, results: Results) -> Verdict:
    """Return what follows from these results; it is final when :func:`next_pairs` has none."""
    cleared = _cleared(results)
    failed = [
        tuple(member for member in pair if member not in cleared) or pair
        for pair, result in results.items()
        if result is False
    ]
    sick = {nodes[left[0]] for left in failed if len(left) == 1}
    bad = {member for left in failed for member in left if nodes[member] in sick and member not in cleared}
    unsure = {member for left in failed if bad.isdisjoint(left) for member in left}
    tested = {member for pair, result in results.items() if result is not None for member in pair}
    return Verdict(tuple(sorted(bad)), tuple(sorted(unsure)), tuple(sorted(nodes.keys() - tested)))


def _cleared(results: Results) -> Collection[int]:
    return {member for pair, result in results.items() if result for member in pair}


def _partner(nodes: Nodes, member: int, among: Sequence[int], results: Results) -> int | None:
    """The first of these on another node with which the member hasn't been paired."""
    for one in among:
        if nodes[one] != nodes[member] and (member, one) not in results and (one, member) not in results:
            return one
    return None
