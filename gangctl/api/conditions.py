"""The types of a GangJob's conditions. Machines read these; ``status.phase`` is a summary for people."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Each is True, False or Unknown, with a reason of :class:`gangctl.api.reasons.Reason` and a sentence."""

    ACCEPTED = "Accepted"
    """The cluster takes the gang's pods; False says what it has against them, and how to go on."""
    READY = "Ready"
    """Every needed member runs its worker."""
    PROGRESSING = "Progressing"
    """The gang runs or is on its way to run; False: it waits for somebody or has ended."""
    SUSPENDED = "Suspended"
    """No pods, because `spec.suspend` is true or a replacement took too long."""
    RESTARTING = "Restarting"
    """From a fault to the start of the next attempt's last worker."""
    DEGRADED = "Degraded"
    """It runs, and somebody should look: a hang that is only observed, an ignored restore point, no spare left."""
    FINISHED = "Finished"
    """True once, when the gang has ended either way: what `kubectl wait` needs."""
    SUCCEEDED = "Succeeded"
    """It has ended as the success policy says."""
    FAILED = "Failed"
    """It has ended otherwise."""
