"""The layout of a gang: which members and places its roles make, in order.

The rule: it follows from the roles alone, so it is made once for equal roles: a decision must not name 10,000 members
again. What it returns must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from gangctl.api.names import member_name
from gangctl.api.roles import Role

_T = TypeVar("_T")
_KEPT: Final = 512
"""So many sets of roles are remembered: more gangs than these only cost time."""


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
    """Make ``function`` remember what it made of equal roles."""
    known = lru_cache(_KEPT)(lambda key: function(key.roles))
    return lambda roles: known(_ByValue(roles))


@for_roles
def layout(roles: tuple[Role, ...]) -> Layout:
    """The layout of these roles."""
    members = {member.name: member for role in roles for member in members_of(role)}
    places = {name: member for name, member in members.items() if not member.is_spare}
    of_roles = {role.name: frozenset(name for name in places if places[name].role is role) for role in roles}
    return Layout(members, places, {name: name for name in places}, of_roles)


def members_of(role: Role) -> tuple[Member, ...]:
    """The members of one role, spares last."""
    return tuple(Member(member_name(role.name, at), role, at) for at in range(role.replicas + role.spares))
