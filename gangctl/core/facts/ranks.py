"""Ranks: which member runs which part of the job in this attempt.

The rule: its own member runs a place until that member's pod can't go on. Then a ready spare of the same role takes the
place and keeps it, and the member's new pod becomes the spare. A rank must not be given twice: a member holds at most
one place, and a place has at most one holder. As many places as a status can name are taken over; others wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gangctl.api.status import HeldRank
from gangctl.core.facts.fitness import ready
from gangctl.core.facts.gang import Gang, once

MAX_TAKEN: Final = 200
"""Places that spares hold: more of them would be too many for a status."""


@once
def assign(gang: Gang) -> Mapping[str, str | None]:
    """Place -> the ready member that runs it in this attempt; None where none can yet.

    A holder that is only slow is waited for; one whose pod is new or missing gives its place to a ready spare.
    """
    those_ready = ready(gang)
    given = {place: holder if holder in those_ready else None for place, holder in gang.holders.items()}
    lacking = [place for place, holder in given.items() if holder is None]
    spares = those_ready - gang.holding if lacking else None
    if not spares:
        return given
    free: dict[str, Iterator[str]] = {}
    room = MAX_TAKEN - sum(place != holder for place, holder in gang.holders.items())
    for place in lacking:
        holder = gang.holders[place]
        if holder not in gang.pods or gang.is_fresh(holder):
            role = gang.places[place].role.name
            may_take = room > 0 or place != holder
            given[place] = next(free.setdefault(role, _of_role(gang, spares, role)), None) if may_take else None
            room -= given[place] is not None and place == holder
    return given


def _of_role(gang: Gang, spares: frozenset[str], role: str) -> Iterator[str]:
    """Those of the role, in order."""
    return (name for name, member in gang.members.items() if name in spares and member.role.name == role)


def held_ranks(assignment: Mapping[str, str | None]) -> tuple[HeldRank, ...]:
    """What the status stores of an assignment: only the places that aren't held by their own member."""
    taken = [(place, member) for place, member in assignment.items() if member is not None and member != place]
    return tuple(HeldRank(place=place, member=member) for place, member in taken)
