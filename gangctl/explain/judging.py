"""One fault in isolation: what a job's policy says of it, as if the gang had no history."""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob
from gangctl.api.incident import IncidentLevel
from gangctl.api.status import Status
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed
from gangctl.core.policy.cause import judged
from gangctl.core.policy.recovery import level_of
from gangctl.core.policy.rules import Verdict, verdict


def judge(job: GangJob, fault: Fault) -> tuple[Verdict, IncidentLevel]:
    """What the job's policy says of one fault, and how much it replaces."""
    fresh = changed(job, status=Status())
    return verdict(job.spec, fault), level_of(Gang(0.0, fresh, Observed()), judged(job.spec, fault))
