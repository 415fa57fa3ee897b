"""Condition types of a GangJob. Programs read conditions; ``status.phase`` is a summary for people."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Each is True, False or Unknown, with a reason from :class:`gangctl.api.reasons.Reason` and a message."""

    ACCEPTED = "Accepted"
    """The cluster admits the gang's pods. If False, the message says why not and what to do."""
    READY = "Ready"
    """Every required member runs its worker."""
    PROGRESSING = "Progressing"
    """The gang runs or will run. If False, it has ended or waits for a user."""
    SUSPENDED = "Suspended"
    """The gang has no pods: `spec.suspend` is true, its queue does not admit it (reason Queued), or a replacement took
    too long."""
    RESTARTING = "Restarting"
    """A restart is in progress, from the fault until the last worker has started."""
    DEGRADED = "Degraded"
    """The gang runs but needs attention, for example after an observed hang or an ignored restore point."""
    FINISHED = "Finished"
    """The gang has ended. Use this condition with `kubectl wait`."""
    SUCCEEDED = "Succeeded"
    """The success policy is satisfied."""
    FAILED = "Failed"
    """The gang has ended without success."""
