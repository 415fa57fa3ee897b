"""Read what users type: numbers, signals, ranks and members. An error says what there is instead."""

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import SIGNALS
from gangctl.api.roles import Numbering, members_of, number_places
from gangctl.cli.errors import UserError
from gangctl.core.facts.gang import holders, roles_of

LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Names of namespaces, gangs and Leases."""
_LAST_SIGNAL: Final = 64
_LARGEST: Final = 2**53
"""The largest number that each program can read in JSON."""


def number(least: int, most: int, what: str) -> Callable[[str], int]:
    """A type for argparse: a whole number in this range. ``what``: it in words, for the error."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST)) and least <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r:.40} isn't {what}")
        return int(text)

    return read


exit_code: Final = number(0, 255, "an exit code: use a number from 0 to 255")
rank: Final = number(0, _LARGEST, "a rank: use 0, 1, 2 ...")
step: Final = number(0, _LARGEST, "a step: use a whole number from 0 on")
attempt: Final = number(0, _LARGEST, "the number of an attempt")


def seconds(text: str) -> float:
    """A duration for argparse, 0 or longer and with an end."""
    with suppress(ValueError):
        if 0 <= (found := float(text)) < math.inf:
            return found
    raise ArgumentTypeError(f"{text!r:.40} isn't a number of seconds: use 0, 30, 1.5 ...")


def namespaced_name(text: str) -> str:
    """``NAMESPACE/NAME`` as it is, for argparse, checked because both become parts of paths."""
    namespace, _, name = text.partition("/")
    if not (LABEL.fullmatch(namespace) and LABEL.fullmatch(name)):
        raise ArgumentTypeError(f"{text!r:.80} instead of NAMESPACE/NAME")
    return text


def signal_number(text: str) -> tuple[str, int]:
    """Name and number of ``SIGKILL``, ``KILL``, ``kill`` or ``9``, for argparse."""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= _LAST_SIGNAL:
        its = int(text)
        return next((name for name, value in SIGNALS.items() if value == its), f"SIG{its}"), its
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name not in SIGNALS:
        near = get_close_matches(name, SIGNALS, 1)
        raise ArgumentTypeError(f"{text!r} isn't a Linux signal" + (f"; did you mean {near[0]}?" if near else ""))
    return name, SIGNALS[name]


def all_members(job: GangJob) -> list[str]:
    """The names of all members; spares come last in their role."""
    return [member.name for role in job.spec.roles for member in members_of(role)]


def checked_member(job: GangJob, name: str) -> str:
    """The name, if a member has it; otherwise UserError."""
    names = all_members(job)
    if name in names:
        return name
    near = get_close_matches(name, names, 3)
    counts = {role.name: role.replicas + role.spares for role in job.spec.roles}
    there = ", ".join(f"{role}-0 to {role}-{count - 1}" if count > 1 else f"{role}-0" for role, count in counts.items())
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {there}"
    raise UserError(f"gang {job.metadata.name} has no member {name!r}: {hint}")


def members_of_role(job: GangJob, role: str) -> list[str]:
    """The names of all members of a role; UserError if there is no such role."""
    found = next((one for one in job.spec.roles if one.name == role), None)
    if found is None:
        roles = ", ".join(one.name for one in job.spec.roles)
        raise UserError(f"gang {job.metadata.name} has no role {role!r}, only {roles}")
    return [member.name for member in members_of(found)]


def member_of_rank(job: GangJob, its: int, role: str | None) -> str:
    """The member that has the rank in this attempt. Ranks start at 0 in each process group, which a role selects."""
    places = [] if role is None else members_of_role(job, role)
    numbering = number_places(roles_of(job.spec, job.status))
    ranks = {place: there for place, there in numbering.ranks.items() if role is None or place in places}
    found = [place for place, there in ranks.items() if its in there]
    if not found:
        raise UserError(f"gang {job.metadata.name} has no rank {its}: {_ranks_there(numbering, ranks)}")
    if len(found) > 1:
        groups = ", ".join(sorted(numbering.roles[place].name for place in found))
        raise UserError(f"rank {its} exists in several process groups: select one with --role ({groups})")
    return holders(job.spec, job.status)[found[0]]


def ranks_of_member(job: GangJob, member: str) -> tuple[int, ...]:
    """The ranks that run in the pod of a member now; none of a spare, or of a role without ranks."""
    places = {holder: place for place, holder in holders(job.spec, job.status).items()}
    return number_places(roles_of(job.spec, job.status)).ranks.get(places.get(member, ""), ())


def _ranks_there(numbering: Numbering, ranks: dict[str, tuple[int, ...]]) -> str:
    by_group: dict[str, list[int]] = {}
    for place, its in ranks.items():
        by_group.setdefault(numbering.roles[place].group, []).extend(its)
    there = [f"{min(its)} to {max(its)} (process group {group})" for group, its in by_group.items()]
    return f"there are {', '.join(there)}" if there else "its roles have no ranks"
