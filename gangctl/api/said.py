"""Messages as values, as a status keeps them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gangctl.api.model import Label, Model


class Said(Model):
    """A message as a value: the name of the sentence and its parameters. Messages are compared by it."""

    name: Label
    """Name of the sentence, such as attempt_waits."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the sentence."""

    def __hash__(self) -> int:
        """Return a hash of the name: parameters may have lists."""
        return hash(self.name)
