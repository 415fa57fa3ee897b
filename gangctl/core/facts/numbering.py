"""Numbering: which ranks each place has.

The rule: ranks are counted per process group, in the order of roles and indexes; a place of no group gets none. They
depend on the spec alone, so they must not change when a member is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gangctl.api.gangjob import Role, Spec
from gangctl.api.names import member_name
from gangctl.core.facts.layout import for_roles, layout


def numbered(spec: Spec) -> Numbering:
    """The numbering of a gang's places."""
    return _numbered(spec.roles)


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
