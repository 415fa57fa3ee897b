"""Resolves members that users name by name, rank or role. An error lists what exists."""

from __future__ import annotations

from argparse import ArgumentTypeError
from difflib import get_close_matches

from gangctl.api.gangjob import GangJob
from gangctl.cli.errors import UserError
from gangctl.core.facts.gang import holders
from gangctl.core.facts.layout import Numbering, members_of, numbered


def rank(text: str) -> int:
    """A rank, as a type for argparse.

    Raises:
        ArgumentTypeError: the text is no rank.
    """
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is no rank: use 0, 1, 2 ...")
    return int(text)


def members(job: GangJob) -> list[str]:
    """All members; spares come last in their role."""
    return [member.name for role in job.spec.roles for member in members_of(role)]


def known_member(job: GangJob, name: str) -> str:
    """The name, if a member has it.

    Raises:
        UserError: no member has it.
    """
    known = members(job)
    if name in known:
        return name
    near = get_close_matches(name, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {_counts(job)}"
    raise UserError(f"gang {job.metadata.name} has no member {name!r}: {hint}")


def members_of_role(job: GangJob, role: str) -> list[str]:
    """All members of a role.

    Raises:
        UserError: there is no such role.
    """
    found = next((one for one in job.spec.roles if one.name == role), None)
    if found is None:
        known = ", ".join(one.name for one in job.spec.roles)
        raise UserError(f"gang {job.metadata.name} has no role {role!r}, only {known}")
    return [member.name for member in members_of(found)]


def member_of_rank(job: GangJob, wanted: int, role: str | None) -> str:
    """The member that has the rank in this attempt. Ranks start at 0 in each process group; a role selects the group.

    Raises:
        UserError: there is no such rank, or several groups have it.
    """
    places = [] if role is None else members_of_role(job, role)
    numbering = numbered(job.spec)
    ranks = {place: its for place, its in numbering.ranks.items() if role is None or place in places}
    found = [place for place, its in ranks.items() if wanted in its]
    if not found:
        raise UserError(f"gang {job.metadata.name} has no rank {wanted}: {_known(numbering, ranks)}")
    if len(found) > 1:
        groups = ", ".join(sorted(numbering.roles[place].name for place in found))
        raise UserError(f"rank {wanted} exists in several process groups: select one with --role ({groups})")
    return holders(job.spec, job.status)[found[0]]


def ranks(job: GangJob, member: str) -> tuple[int, ...]:
    """The ranks that run in the pod of a member now; none of a spare, or of a role without ranks."""
    places = {holder: place for place, holder in holders(job.spec, job.status).items()}
    return numbered(job.spec).ranks.get(places.get(member, ""), ())


def _known(numbering: Numbering, ranks: dict[str, tuple[int, ...]]) -> str:
    by_group: dict[str, list[int]] = {}
    for place, its in ranks.items():
        by_group.setdefault(numbering.roles[place].group, []).extend(its)
    said = [f"{min(its)} to {max(its)} (process group {group})" for group, its in by_group.items()]
    return f"there are {', '.join(said)}" if said else "its roles have no ranks"


def _counts(job: GangJob) -> str:
    names = {role.name: role.replicas + role.spares for role in job.spec.roles}
    return ", ".join(f"{name}-0 to {name}-{count - 1}" if count > 1 else f"{name}-0" for name, count in names.items())
