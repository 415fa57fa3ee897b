"""Members and places of a gang, and which rank each has.

The layout of a gang: which members and places its roles make, in order.

The rule: it follows from the roles alone, so it is made once for equal roles: a decision must not name 10,000 members
again. What it returns must not be changed.

Numbering: which ranks each place has.

The rule: ranks are counted per process group, in the order of roles and indexes; a place of no group gets none. They
depend on the roles alone, so they must not change when a member is replaced.

Sizes: an attempt with fewer members than are wanted (``policy/size.py``) has the first places of a role. The members
without a place are spares, and the ranks are dense, also where rank 0 is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from gangctl.api.gangjob import Role, Spec
from gangctl.api.model import changed
from gangctl.api.names import member_name
from gangctl.api.status import Status

# The layout of a gang


_T = TypeVar("_T")
_KEPT: Final = 200_000
"""Of so many members the layout is remembered, of all gangs together, at about 300 bytes each: more only cost time."""
_LEAST: Final = 100
"""A set of roles costs as much as so many members, however few it has."""


@dataclass(frozen=True, slots=True)
class Member:
    """One place in the gang."""

    name: str
    role: Role
    index: int

    @property
    def is_spare(self) -> bool:
        """Beyond the needed ones: it has no place of its own."""
        return self.index >= self.role.replicas


@dataclass(frozen=True, slots=True)
class Layout:
    """All members of a gang, and those that have a place."""

    members: Mapping[str, Member]
    """By name, in the order of roles and indexes; spares come last in their role."""
    places: Mapping[str, Member]
    """The needed members by name: the places that must be filled."""
    own: Mapping[str, str]
    """Place -> the member of the same name: its holder by default."""
    places_of: Mapping[str, frozenset[str]]
    """Role -> its places."""


class _ByValue:
    """Roles as a key: equal roles are one key, and the hash doesn't look into their templates."""

    __slots__ = ("_hash", "roles")

    def __init__(self, roles: tuple[Role, ...]) -> None:
        self.roles = roles
        self._hash = hash(tuple((role.name, role.replicas, role.spares) for role in roles))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and self.roles == other.roles


def for_roles(function: Callable[[tuple[Role, ...]], _T]) -> Callable[[tuple[Role, ...]], _T]:
    """Make ``function`` remember what it made of equal roles: of those that were asked for last."""
    known: dict[_ByValue, _T] = {}
    size = 0

    def remembered(roles: tuple[Role, ...]) -> _T:
        nonlocal size
        key = _ByValue(roles)
        found = known.pop(key, None)  # It compares roles once, and once is much.
        if found is not None:
            known[key] = found
            return found
        found = known[key] = function(roles)
        size += _size(roles)
        while size > _KEPT and len(known) > 1:
            oldest = next(iter(known))
            del known[oldest]
            size -= _size(oldest.roles)
        return found

    return remembered


def _size(roles: tuple[Role, ...]) -> int:
    return _LEAST + sum(role.replicas + role.spares for role in roles)


@for_roles
def layout(roles: tuple[Role, ...]) -> Layout:
    """The layout of these roles."""
    members = {member.name: member for role in roles for member in members_of(role)}
    places = {name: member for name, member in members.items() if not member.is_spare}
    of_roles = {role.name: frozenset(name for name in places if places[name].role is role) for role in roles}
    return Layout(members, places, {name: name for name in places}, of_roles)


def roles_of(spec: Spec, status: Status) -> tuple[Role, ...]:
    """The roles as the status' attempt has them: a smaller one has fewer places, and more spares."""
    if status.size is None or not status.size.roles:
        return spec.roles
    return with_sizes(spec.roles, {one.name: one.members for one in status.size.roles})


def with_sizes(roles: tuple[Role, ...], sizes: Mapping[str, int]) -> tuple[Role, ...]:
    """The roles with these numbers of places; one that isn't named keeps its own. The members stay the same."""
    return tuple(
        [
            role
            if sizes.get(role.name, role.replicas) >= role.replicas
            else changed(role, replicas=sizes[role.name], spares=role.spares + role.replicas - sizes[role.name])
            for role in roles
        ]
    )


def members_of(role: Role) -> tuple[Member, ...]:
    """The members of one role, spares last."""
    return tuple(Member(member_name(role.name, at), role, at) for at in range(role.replicas + role.spares))


# Numbering


def number_places(roles: tuple[Role, ...]) -> Numbering:
    """Number the places of these roles."""
    return _numbered(roles)


@dataclass(frozen=True)
class Numbering:
    """Who has which ranks: places are numbered within their process group, in the order of roles and indexes."""

    all_roles: tuple[Role, ...]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Process group -> its places in the order of their node ranks. Without the places that have no ranks."""
        groups: dict[str, list[str]] = {}
        for role in self.all_roles:
            if role.group:
                groups.setdefault(role.group, []).extend(member_name(role.name, at) for at in range(role.replicas))
        return groups

    @cached_property
    def node_ranks(self) -> dict[str, int]:
        """Place -> its number among the places of its group."""
        return {place: rank for places in self.groups.values() for rank, place in enumerate(places)}

    @cached_property
    def ranks(self) -> dict[str, tuple[int, ...]]:
        """Place -> its ranks, as many as it has processes (torchrun's children included)."""
        ranks: dict[str, tuple[int, ...]] = {}
        for places in self.groups.values():
            first = 0
            for place in places:
                after = first + self.roles[place].processes_per_pod
                ranks[place] = tuple(range(first, after))
                first = after
        return ranks

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Place -> its role."""
        return {name: member.role for name, member in layout(self.all_roles).places.items()}

    def world_size(self, group: str) -> int:
        """How many ranks the group has."""
        return sum(role.replicas * role.processes_per_pod for role in self.all_roles if role.group == group)


@for_roles
def _numbered(roles: tuple[Role, ...]) -> Numbering:
    return Numbering(roles)
