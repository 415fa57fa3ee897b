"""What a user asks for with a restart: which restore point the next attempt starts from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Constraint, Model


class RestartFrom(Model):
    """Which restore point a requested restart starts from."""

    constraints = (
        Constraint(
            "type Step needs step, and no other type takes it",
            lambda asked: (asked.type == "Step") == (asked.step is not None),
            "(self.type == 'Step') == has(self.step)",
            ("type", "step"),
        ),
        Constraint(
            "types Beginning and Step need restartToken: they count for that token only",
            lambda asked: asked.type == "Newest" or bool(asked.restart_token),
            "self.type == 'Newest' || self.restartToken != ''",
            ("type", "restartToken"),
        ),
    )

    type: Literal["Newest", "Beginning", "Step"] = "Newest"
    """Newest: the newest step that every rank can load. Beginning: no checkpoint; existing ones are not used again.
    Step: the step in `step`; newer ones are not used again."""
    step: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Step to start from. Only with type Step."""
    restart_token: Annotated[str, Field(max_length=253)] = ""
    """The spec.restartToken that this belongs to. It has no effect on other restarts, so it can stay in the
    manifest."""
