"""Rolling: how many gangs of a group may be unavailable at once because of planned restarts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangctl.api.model import Model, PositiveSeconds, Seconds


class Rolling(Model):
    """Planned restarts of the gangs of a group go in turn, as in the rolling update of a Deployment."""

    group: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
    """Name of the group: all GangJobs of the namespace with the same value."""
    max_unavailable: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of gangs of the group, including this gang, that may be unavailable when its planned restart begins. Gangs
    that are unavailable after a fault count."""
    min_ready_seconds: Seconds = 40
    """Seconds after the start of an attempt after which a gang whose required pods are ready counts as available. Must
    exceed the time that the readinessProbe takes to fail (periodSeconds times failureThreshold, plus
    timeoutSeconds)."""
    progress_deadline_seconds: PositiveSeconds = 600
    """Seconds after which the condition Degraded reports a planned restart that still waits for its group."""
