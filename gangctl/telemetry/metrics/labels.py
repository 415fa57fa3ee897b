"""The label values of metrics.

The rule: the number of label values is bounded. An unknown reason, or a namespace above the bound, is counted under a
common value. The name of a gang or a pod must not be a label value, nor that of a node that nothing is wrong with.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase

NAMESPACES: Final = 200
"""How many namespaces get their own series: the first ones that are seen."""
OTHER_NAMESPACES: Final = "_other"
"""All other namespaces. A namespace cannot have such a name."""
OTHER_REASON: Final = "Other"
NODES: Final = 200
"""How many nodes at fault get their own series: the first ones that are seen."""
OTHER_NODES: Final = "_other"
"""All other nodes. A node cannot have such a name."""
PHASES: Final = tuple(phase for phase in GangPhase if phase is not GangPhase.NEW)
_REASONS: Final = frozenset(reason.value for reason in Reason)


class Namespaces:
    """The namespaces that have their own series, for the lifetime of this process."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def label(self, job: GangJob) -> str:
        """The label value of the gang's namespace."""
        name = job.metadata.namespace
        if name not in self._seen and len(self._seen) >= NAMESPACES:
            return OTHER_NAMESPACES
        self._seen.add(name)
        return name


class Nodes:
    """The nodes that have their own series, for the lifetime of this process: those on which a fault was seen."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def label(self, name: str) -> str:
        """The label value of a node."""
        if name not in self._seen and len(self._seen) >= NODES:
            return OTHER_NODES
        self._seen.add(name)
        return name


def reason_of(incident: Incident) -> str:
    """The label value of the reason of its cause."""
    return known(incident.cause.reason)


def known(reason: str) -> str:
    """The label value of a reason that a status has: a status may be of another release."""
    return reason if reason in _REASONS else OTHER_REASON
