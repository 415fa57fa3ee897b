"""Who has finished, in a status: ranges instead of names, so that 10,000 members have room."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangctl.api.model import Label, Model, Timestamp


class FinishedRole(Model):
    """Members of one role whose workers have finished."""

    name: Label
    """Name of the role."""
    indexes: Annotated[str, Field(max_length=32_768)]
    """Their indexes, such as 0-511,513."""


class Finished(Model):
    """Members whose workers ended with exit code 0 before any stop. A rank that a spare took counts for its member."""

    attempt: int
    """Attempt that they count for."""
    time: Timestamp
    """Time of the last change."""
    roles: Annotated[tuple[FinishedRole, ...], Field(max_length=8)] = ()
    """Roles with such members."""
