"""A bad manifest, and what finds the mistake: the schema, its CEL rules, or only gangctl."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Check(StrEnum):
    """The check that finds the mistake: one of the API server, or only gangctl's."""

    SCHEMA = "schema"
    CEL = "CEL"
    LIST_MAP = "list-map"
    GANGCTL = "gangctl"


@dataclass(frozen=True, slots=True)
class Bad:
    """A manifest that must be refused."""

    name: str
    manifest: dict[str, Any]
    path: str
    says: str
    """Part of the message."""
    found_by: Check
    cel: str = ""
    """Part of the CEL rule's message."""
