"""Rolling: how many gangs of a group may be unavailable at once because of planned restarts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangctl.api.model import Model, PositiveSeconds, Seconds


class Rolling(Model):
    """Planned restarts of the gangs of a group go in turn, as in the rolling update of a Deployment."""

    group: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
    """Name of the group: all GangJobs of the namespace that have the same one. Lower-case letters, digits and dashes,
    at most 63."""
    max_unavailable: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of gangs of the group that may be unavailable, this one included, when a planned restart of this one
    begins. A gang that is unavailable after a fault counts."""
    min_ready_seconds: Seconds = 40
    """Seconds that an attempt must have run, with all its required pods ready at the end, until the gang counts as
    available. It must be more than the readinessProbe takes to fail (periodSeconds times failureThreshold, plus
    timeoutSeconds): until then, a pod whose processes were restarted is still shown as ready. The default is enough for
    a probe with the defaults of Kubernetes."""
    progress_deadline_seconds: PositiveSeconds = 600
    """Seconds for which a planned restart may wait for its group until the condition Degraded says so. It waits on."""
