"""Condition types of a GangJob. Programs read conditions; ``status.phase`` is a summary for people."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Each is True, False or Unknown, with a reason from :class:`gangctl.api.reasons.Reason` and a message."""

    ACCEPTED = "Accepted"
    """The cluster admits the gang's pods. If False, the message has the cluster's objections and what to do."""
    READY = "Ready"
    """Every required member runs its worker."""
    PROGRESSING = "Progressing"
    """The gang runs or is about to run. If False, the gang has ended or waits for an action by a user."""
    SUSPENDED = "Suspended"
    """The gang has no pods, because `spec.suspend` is true, its queue does not admit it (reason Queued), or a
    replacement took too long."""
    RESTARTING = "Restarting"
    """A restart is in progress: from the fault until the last worker of the next attempt has started."""
    DEGRADED = "Degraded"
    """The gang runs but needs attention: a hang that is only observed, an ignored restore point, or no spare left."""
    FINISHED = "Finished"
    """The gang has ended, successfully or not. Use this condition with `kubectl wait`."""
    SUCCEEDED = "Succeeded"
    """The gang has ended and the success policy is satisfied."""
    FAILED = "Failed"
    """The gang has ended without success."""
