"""What both sides know of the WebSocket upgrade, and what a peer of another release takes.

Controller and sidecar may be of different releases: a field that comes later has a default and a revision, and the
sender leaves out what its peer does not know yet.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

Part = TypeVar("Part")

CONNECT_PATH = "/v1/connect"
"""Where a controller accepts sidecars."""
LEADER_HEADER = "Gang-Leader"
"""Header of a standby's refusal (503): the URL of the leader."""
REVISION = 1
"""Of version 1. A release that adds a field raises it and names the field in :data:`ADDED`."""
ADDED: dict[type, dict[str, int]] = {}
"""By type of message or part: its fields that came after revision 1, each with its revision."""
REVISION_HEADER = "Gang-Wire-Revision"
"""The sender's revision, in the request for the upgrade and in its answer. A peer that sends none has revision 1."""

_NUMBER = re.compile("[0-9]{1,6}")


def revision_of(header: str) -> int:
    """The peer's revision, from its header; empty if it sent none."""
    return int(header) if _NUMBER.fullmatch(header) else 1


def in_revision(message: Part, revision: int) -> Part:
    """Return the message as a peer of that revision takes it: fields that came later have their defaults."""
    return message if revision >= REVISION else _older(message, revision)


def _older(part: Any, revision: int) -> Any:
    if isinstance(part, tuple):
        return tuple(_older(one, revision) for one in part)
    if not is_dataclass(part):
        return part
    kind: Any = type(part)
    added = ADDED.get(kind, {})
    known = {
        field.name: field.default
        if added.get(field.name, 1) > revision
        else _older(getattr(part, field.name), revision)
        for field in fields(kind)
    }
    return kind(**known)
