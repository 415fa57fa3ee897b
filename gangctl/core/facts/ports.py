"""Ports: which rank 0 has none for its peers to reach it at.

The rule: the supervisor of rank 0 looks for free ports of ``spec.network`` before it is ready, and again as long as it
finds none. A process group of several ranks must not start at a port that another process has: it would fail, again and
again. A single rank needs none.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangctl.core.facts.gang import Gang
from gangctl.core.facts.numbering import numbered


def without_port(gang: Gang, assignment: Mapping[str, str | None]) -> list[str]:
    """The ready members with rank 0 of a process group that found no free port. ``assignment``: place -> member."""
    numbering = numbered(gang.spec)
    first = {places[0]: numbering.world_size(group) for group, places in numbering.groups.items() if places}
    members = [assignment[place] for place, size in first.items() if size > 1]
    return [one for one in members if one is not None and is_without_port(gang, one)]


def is_without_port(gang: Gang, member: str) -> bool:
    """Whether the member's supervisor is ready and found no free port."""
    heard = gang.heard_by_member.get(member)
    return heard is not None and heard.ready_for == gang.status.attempt and not heard.report.ports


def port_range(gang: Gang) -> str:
    """The ports among which it looks, as ``29400 to 29463``."""
    network = gang.spec.network
    last = network.base_port + network.port_count - 1
    return str(last) if network.port_count == 1 else f"{network.base_port} to {last}"
