"""Members on the page: counts by role and state for any number of them, cells for some, names for those of interest.

The rule: of a small gang each member has a cell. Of a large one, members in a row that are in the same state share a
cell, and if these are too many, those in the commonest state have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from typing import Final

from gangctl.api.incident import Incident
from gangctl.api.snapshot import MemberSnapshot
from gangctl.explain.page.documents import Cell, Count, Interest

MOST_CELLS: Final = 160
MOST_INTEREST: Final = 16
MOST_COUNTS: Final = 64


def state(one: MemberSnapshot) -> str:
    """What the member does, in a word or two."""
    if one.finished:
        return "Finished"
    if one.terminated:
        return "Ended"
    if not one.pod:
        return "No pod"
    if not one.connected:
        return "Not connected" if one.phase else "Starting"
    return one.phase


def counts(members: Sequence[MemberSnapshot]) -> tuple[Count, ...]:
    """How many members of each role are in which state; the roles in order, the commonest state first."""
    found = Counter((one.role, state(one)) for one in members)
    roles = {role: at for at, role in enumerate(dict.fromkeys(role for role, _ in found))}
    ordered = sorted(found.items(), key=lambda item: (roles[item[0][0]], -item[1]))
    return tuple(Count(role=role, state=its, members=count) for (role, its), count in ordered[:MOST_COUNTS])


def cells(members: Sequence[MemberSnapshot]) -> tuple[tuple[Cell, ...], int]:
    """The cells, and how many members have none."""
    if len(members) <= MOST_CELLS:
        return tuple(map(_cell, members)), 0
    runs = [tuple(run) for _, run in groupby(members, key=lambda one: (one.role, one.spare, state(one)))]
    if len(runs) > MOST_CELLS:
        common = Counter(state(one) for one in members).most_common(1)[0][0]
        runs = [run for run in runs if state(run[0]) != common][:MOST_CELLS]
    return tuple(map(_run, runs)), len(members) - sum(map(len, runs))


def interest(
    members: Sequence[MemberSnapshot], incident: Incident | None, nodes: Mapping[str, str]
) -> tuple[Interest, ...]:
    """Members that a reader looks for first. ``incident``: the last one; ``nodes``: member -> node of its pod."""
    known = {one.member: one for one in members}
    found = [(known[name], why) for name, why in _reasons(members, incident).items() if name in known]
    return tuple(
        Interest(
            name=one.member,
            why=", ".join(dict.fromkeys(why)),
            state=state(one),
            rank=one.rank,
            step=one.step,
            node=nodes.get(one.member, ""),
            pod=one.pod,
        )
        for one, why in found[:MOST_INTEREST]
    )


def _reasons(members: Sequence[MemberSnapshot], incident: Incident | None) -> dict[str, list[str]]:
    """Members of interest with the reasons, the most important first."""
    found: dict[str, list[str]] = {}
    if incident is not None:
        found[incident.cause.member] = ["at fault"]  # Without a member at fault, no member has this name.
        for name in incident.cause.tied:
            found.setdefault(name, ["ended at the same moment"])
        for one in incident.members:
            if one.part == "Replaced":
                found.setdefault(one.member, []).append("its pod was replaced")
    if len(members) > MOST_CELLS:
        common = Counter(map(state, members)).most_common(1)[0][0]
        for other in islice((one for one in members if state(one) != common), MOST_INTEREST):
            found.setdefault(other.member, []).append("in another state than most")
        behind = min((one for one in members if one.step is not None), key=_step, default=None)
        if behind is not None:
            found.setdefault(behind.member, []).append("the lowest step")
    return found


def _step(one: MemberSnapshot) -> int:
    return one.step or 0


def _cell(one: MemberSnapshot) -> Cell:
    return Cell(name=one.member, state=state(one), rank=one.rank, spare=one.spare, step=one.step, restarts=one.restarts)


def _run(run: Sequence[MemberSnapshot]) -> Cell:
    first, last = run[0], run[-1]
    if len(run) == 1:
        return _cell(first)
    return Cell(name=first.member, last=last.member, members=len(run), state=state(first), spare=first.spare)
