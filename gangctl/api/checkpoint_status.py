"""The part of the status that is about checkpoints: which one is restored, which exist, and which do not any more."""

from __future__ import annotations

from gangctl.api.model import Label, Model, Text


class LineageEntry(Model):
    """An attempt that went back to a step. What earlier attempts saved beyond that step no longer exists."""

    attempt: int
    """The attempt."""
    step: int | None = None
    """Step of its restore point; absent if it started from the beginning."""


class RequestedStep(Model):
    """The restore point that a user has requested for the coming attempt."""

    step: int | None = None
    """The step; absent for the beginning."""


class RestorePoint(Model):
    """The checkpoint that every rank of the attempt loads."""

    step: int
    """Step of the checkpoint."""
    tier: Label
    """The tier that it is in."""
    path: Text = ""
    """Path of the checkpoint in a Shared tier. Empty for other tiers, where each member knows its own path."""


class RejectedStep(Model):
    """A step of a Shared tier that is ignored until the file that marks it complete changes."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    marker: Text = ""
    """Identity of the completion marker when the step was rejected."""


class RecordedStep(Model):
    """A step of a Shared tier that every rank has registered. Registrations are lost with their pods, this is not."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    path: Text = ""
    """Path of the checkpoint, if a rank reported one."""
    marker: Text = ""
    """Identity of the registration."""
    attempt: int = 0
    """Newest attempt in which a rank wrote it."""
