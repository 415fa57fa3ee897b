"""Slow members: their own part of a step takes longer than that of the others, for a long time.

    own(m)   = median of the last 50 steps of m's slowest rank, without waiting for others, in this attempt
    typical  = median of own over the members of the role
    spread   = 1.4826 * median of abs(own - typical), and at least 1 ms, which is how exact a report is
    slow(m) <=> own(m) - typical > max(SHARE * typical, DEVIATIONS * spread)
    while the status tells of slow members: more than 5 % and 4.5 deviations are enough, so that it doesn't flap

Nothing is said where all are slow at once, where fewer than FEW members of the role have filled their window, or where
more than one of MANY is slow: that is uneven work (the stages of a pipeline), not a device. A member must not be judged
by what it did in an earlier attempt, or before it was replaced.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Final, NamedTuple

from gangctl.core.facts.finished import need_no_pod
from gangctl.core.facts.gang import Gang

SHARE: Final = 0.10
DEVIATIONS: Final = 6.0
SHARE_TO_STAY: Final = 0.05
DEVIATIONS_TO_STAY: Final = 4.5
FEW: Final = 4
MANY: Final = 32
_NORMAL: Final = 1.4826
"""Makes the median of deviations comparable to a standard deviation."""
_EXACT_MS: Final = 1.0


class Slow(NamedTuple):
    """A slow member."""

    excess: float
    """By how much of the typical time it is slower: 0.15 is 15 %."""
    member: str
    rank: int
    own_ms: int
    typical_ms: float


def slow(gang: Gang, *, stays: bool = False) -> list[Slow]:
    """The slow members, the slowest first. ``stays``: the status tells of slow members already."""
    roles = defaultdict[str, list[tuple[int, int, str]]](list)
    done = need_no_pod(gang)
    for place, member in gang.holders.items():
        heard = gang.heard_by_member.get(member)
        if heard is None or not heard.connected or heard.step_attempt != gang.status.attempt or member in done:
            continue
        progress = heard.report.progress
        if progress is not None and progress.own_ms is not None and progress.own_rank is not None:
            roles[gang.places[place].role.name].append((progress.own_ms, progress.own_rank, member))
    return sorted((one for told in roles.values() for one in outliers(told, stays=stays)), reverse=True)


def outliers(told: list[tuple[int, int, str]], *, stays: bool = False) -> list[Slow]:
    """The slow ones of a role. ``told``: own milliseconds a step, rank and name of each member."""
    if len(told) < FEW:
        return []
    share, deviations = (SHARE_TO_STAY, DEVIATIONS_TO_STAY) if stays else (SHARE, DEVIATIONS)
    typical = median([own for own, _, _ in told])
    spread = max(_EXACT_MS, _NORMAL * median([abs(own - typical) for own, _, _ in told]))
    limit = typical + max(share * typical, deviations * spread)
    found = [
        Slow(own / typical - 1 if typical else 0.0, member, rank, own, typical)
        for own, rank, member in told
        if own > limit
    ]
    return found if len(found) <= max(1, len(told) // MANY) else []
