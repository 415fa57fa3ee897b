"""What a status has of the times between steps, from which a deadline is computed."""

from __future__ import annotations

from gangctl.api.model import Model


class StepGaps(Model):
    """The times between two reported steps, from which spec.progress.adaptive computes its deadline."""

    attempt: int = 0
    """Newest attempt that has shown enough of them."""
    longest_milliseconds: int = 0
    """The longest time in milliseconds, updated when it has grown by more than 10 %."""
    reached_step: int | None = None
    """Highest step of earlier attempts. Until an attempt passes it, timeoutSeconds applies."""
