"""Labels of metrics. They are bounded: a value that isn't known, or is one too many, is counted under another.

Never is the name of a gang, a pod or a node a label: there is no end of those. Namespaces are labels, up to a bound.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Incident

NAMESPACES: Final = 200
"""So many namespaces get series of their own, first come, first served."""
OTHER_NAMESPACES: Final = "_other"
"""Stands for all others. No namespace has such a name."""
OTHER_REASON: Final = "Other"
PHASES: Final = tuple(phase for phase in GangPhase if phase is not GangPhase.NEW)
_REASONS: Final = frozenset(reason.value for reason in Reason)


class Namespaces:
    """The namespaces that were seen, up to the bound. One that was seen keeps its series while this process lives."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def label(self, job: GangJob) -> str:
        """What its namespace is called in metrics."""
        name = job.metadata.namespace
        if name not in self._seen and len(self._seen) >= NAMESPACES:
            return OTHER_NAMESPACES
        self._seen.add(name)
        return name


def reason_of(incident: Incident) -> str:
    """The reason of its cause."""
    reason = incident.cause.reason
    return reason if reason in _REASONS else OTHER_REASON
