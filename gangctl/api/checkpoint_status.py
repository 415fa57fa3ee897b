"""The part of the status that is about checkpoints: which one is restored, which exist, and which do not any more."""

from __future__ import annotations

from gangctl.api.model import Label, Model, Text


class LineageEntry(Model):
    """An attempt that went back to a step. Later steps of earlier attempts no longer count."""

    attempt: int
    """The attempt."""
    step: int | None = None
    """Step of its restore point; absent for the beginning."""


class RequestedStep(Model):
    """The restore point that a user has requested for the coming attempt."""

    step: int | None = None
    """The step; absent for the beginning."""


class RestorePoint(Model):
    """The checkpoint that every rank of the attempt loads."""

    step: int
    """Step of the checkpoint."""
    tier: Label
    """Tier of the checkpoint."""
    path: Text = ""
    """Path of the checkpoint in a Shared tier; empty for other tiers."""


class RejectedStep(Model):
    """A step of a Shared tier that is ignored until its completion marker changes."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    marker: Text = ""
    """Identity of the completion marker at the rejection."""


class RecordedStep(Model):
    """A step of a Shared tier that every rank has registered."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    path: Text = ""
    """Path of the checkpoint, if reported."""
    marker: Text = ""
    """Identity of the registration."""
    attempt: int = 0
    """Newest attempt in which a rank wrote it."""
