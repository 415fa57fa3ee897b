"""Defaults: what each reason of a fault is worth, and what it costs where no rule of the user says more.

The rule: one row for each reason, and no second copy. How strong the evidence is, whether the restart is charged, the
least that is replaced, and whether the node is suspected are read from here. The pod failure policy can charge a fault
otherwise, end the job, and raise the level. Neither a rule nor a row must lower the level or change the strength.

``gangctl classify --explain-defaults`` prints the table, with what the field's failures look like and where that is
written; ``docs/reference/faults.md`` is made from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from gangctl.api.incident import IncidentLevel
from gangctl.api.reasons import Reason


class Strength(IntEnum):
    """What outranks what as the cause of an incident."""

    REQUEST = 1
    END = 2
    CONTAINER = 3
    DISRUPTION = 4
    NODE = 5
    DEVICE = 6


@dataclass(frozen=True, slots=True)
class Default:
    """What a reason is worth."""

    strength: Strength = Strength.REQUEST
    charged: bool = True
    """Whether a restart consumes the budget, waits before the next, and counts as a failure of the job."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """The least that is replaced."""
    vague: bool = False
    """Whether it is what the end of a pod or of a container looks like before the reason for it is known."""
    against_node: bool = False
    """Whether it is evidence against the node itself, which the new pod then avoids."""


def _disruption(*, vague: bool = False) -> Default:
    return Default(Strength.DISRUPTION, charged=False, level=IncidentLevel.POD, vague=vague)


def _node(strength: Strength, *, charged: bool) -> Default:
    return Default(strength, charged=charged, level=IncidentLevel.POD, against_node=True)


DEFAULTS: Final[Mapping[str, Default]] = MappingProxyType(
    {
        # Its node may have healthy ones, and the kubelet gives no other: decision 42.
        Reason.DEVICE_LOST: Default(Strength.DEVICE, level=IncidentLevel.POD),
        Reason.NODE_LOST: _node(Strength.NODE, charged=False),
        Reason.NODE_UNHEALTHY: _node(Strength.NODE, charged=False),
        Reason.NODE_DRAINED: _disruption(),
        Reason.DEVICE_TAINTED: _disruption(),  # If the pod's status calls the device unhealthy too, that outranks it.
        Reason.EVICTED: _disruption(),
        # The pod's own doing, so charged; as strong as a disruption, which it looks like first.
        Reason.STORAGE_EXCEEDED: Default(Strength.DISRUPTION, level=IncidentLevel.POD),
        Reason.PREEMPTED: _disruption(),
        Reason.DISRUPTED: _disruption(vague=True),
        Reason.POD_DELETED: _disruption(vague=True),
        Reason.POD_FAILED: Default(Strength.CONTAINER, level=IncidentLevel.POD, vague=True),
        Reason.CONTAINER_RESTARTED: Default(Strength.CONTAINER, level=IncidentLevel.CONTAINER, vague=True),
        Reason.EXIT_CODE: Default(Strength.END),
        Reason.EXIT_CODE_HIDDEN: Default(Strength.END),
        Reason.SIGNAL: Default(Strength.END),
        Reason.OOM_KILLED: Default(Strength.END),  # Of a whole container: CONTAINER, and its level says so.
        Reason.START_FAILED: Default(Strength.END),
        Reason.STUCK: _node(Strength.REQUEST, charged=True),
        # Of one member. Where most miss it, the step or the storage is to blame, and no pod is (``policy/ladder.py``).
        Reason.RESTORE_POINT_MISSING: Default(level=IncidentLevel.POD),
        Reason.HANG: Default(),
        # Only where a rule asks for it: policy/degradation.py.
        Reason.DEVICE_DEGRADED: Default(charged=False, level=IncidentLevel.POD),
        Reason.REQUESTED: Default(),
        Reason.RESTART_REQUESTED: Default(charged=False),
    }
)
"""Each reason that a fault can have. A newer release may have others: they count as the end of a process."""


def default(reason: str) -> Default:
    """What the reason is worth; one that isn't known here is charged, and the weakest evidence."""
    return DEFAULTS.get(reason, Default())
