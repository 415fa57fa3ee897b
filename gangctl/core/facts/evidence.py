"""Evidence: one fault, how strong it is, and the default answer to each reason.

Defaults: what each reason of a fault is worth, and what it costs where no rule of the user says more.

The rule: one row for each reason, and no second copy. How strong the evidence is, whether the restart is charged, the
least that is replaced, and whether the node is suspected are read from here. The pod failure policy can charge a fault
otherwise, end the job, and raise the level. Neither a rule nor a row must lower the level or change the strength.

``gangctl classify --explain-defaults`` prints the table, with what the field's failures look like and where that is
written; ``docs/reference/faults.md`` is made from both.

Evidence: one fault, and how strong it is.

    device > node > disruption of a pod > end of a container > end of a process > request

Among equals the earliest wins. A cause must not be stored as more than was seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from gangctl.api.incident import Cause, IncidentLevel
from gangctl.api.reasons import Reason
from gangsidecar.wire import Level, LogMatch

# Defaults


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
    unclear: bool = False
    """Whether it says that something is wrong, and not who is to blame: checks with ``when: Fault`` run."""


def _disruption(*, vague: bool = False) -> Default:
    return Default(Strength.DISRUPTION, charged=False, level=IncidentLevel.POD, vague=vague)


def _node(strength: Strength, *, charged: bool) -> Default:
    return Default(strength, charged=charged, level=IncidentLevel.POD, against_node=True)


DEFAULTS: Final[Mapping[str, Default]] = MappingProxyType(
    {
        # Its node may have healthy ones, and the kubelet gives no other: decision 42.
        Reason.DEVICE_LOST: Default(Strength.DEVICE, level=IncidentLevel.POD),
        # As strong as a device, which is what computes wrongly. Of one member, as below.
        Reason.CORRUPTION: _node(Strength.DEVICE, charged=True),
        # What was measured before an attempt: it explains what an unclear fault does not.
        Reason.CHECK_FAILED: _node(Strength.DEVICE, charged=True),
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
        Reason.POD_FAILED: Default(Strength.CONTAINER, level=IncidentLevel.POD, vague=True, unclear=True),
        Reason.CONTAINER_RESTARTED: Default(
            Strength.CONTAINER, level=IncidentLevel.CONTAINER, vague=True, unclear=True
        ),
        Reason.EXIT_CODE: Default(Strength.END),
        Reason.EXIT_CODE_HIDDEN: Default(Strength.END, unclear=True),
        Reason.SIGNAL: Default(Strength.END, unclear=True),  # A watchdog of a collective aborts the ranks that wait.
        Reason.OOM_KILLED: Default(Strength.END),  # Of a whole container: CONTAINER, and its level says so.
        Reason.START_FAILED: Default(Strength.END),
        Reason.STUCK: _node(Strength.REQUEST, charged=True),
        # Of one member. Where most miss it, the step or the storage is to blame, not a pod (``policy/recovery.py``).
        Reason.RESTORE_POINT_MISSING: Default(level=IncidentLevel.POD),
        Reason.HANG: Default(unclear=True),
        # Only where a rule asks for it: policy/pods.py.
        Reason.DEVICE_DEGRADED: Default(charged=False, level=IncidentLevel.POD),
        Reason.REQUESTED: Default(unclear=True),
        Reason.RESTART_REQUESTED: Default(charged=False),
        Reason.GROWING: Default(charged=False),
        Reason.QUOTA_RECLAIMED: Default(charged=False),
    }
)
"""Each reason that a fault can have. A newer release may have others: they count as the end of a process."""


def default(reason: str) -> Default:
    """What the reason is worth; one that isn't known here is charged, and the weakest evidence."""
    return DEFAULTS.get(reason, Default())


# Evidence


TIE_SECONDS: Final = 0.05
"""Ends closer than this count as one moment: ages are exact, but the time that a report travelled is unknown."""


DISRUPTION_REASONS: Final = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.EVICTED,
    "TerminationByKubelet": Reason.DISRUPTED,
    "DeletionByTaintManager": Reason.NODE_LOST,
    "DeletionByPodGC": Reason.NODE_LOST,
    "DeletionByDeviceTaintManager": Reason.DEVICE_TAINTED,
}
"""Reasons of the pod condition DisruptionTarget (KEP-3329, KEP-5055) -> ours."""


VAGUE_REASONS: Final = frozenset(reason for reason, row in DEFAULTS.items() if row.vague)
"""What the end of a pod or of a container looks like before the reason for it is known."""
REPLACED_REASONS: Final = frozenset({Reason.POD_DELETED, Reason.POD_FAILED})
"""What happens to every pod that is replaced."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One piece of evidence. ``time`` is in seconds since the epoch."""

    reason: Reason
    member: str
    time: float
    incarnation: int = 0
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    device: str | None = None
    resource: str | None = None
    health: str | None = None
    node: str | None = None
    conditions: tuple[tuple[str, str, str], ...] = ()
    level: Level = Level.PROCESS
    """The least that this fault itself asks for."""
    message: str = ""
    """What was seen, in gangctl's own words."""
    words: str = ""
    """What the worker, its framework or its supervisor says of it, in its own words."""
    lines: tuple[LogMatch, ...] = ()
    """What was found in the output of the member's worker, where this is an end of one of its processes."""
    exact: bool = True
    """Whether ``time`` is: where it isn't, it is unknown what came first."""

    strength: Strength = field(init=False, compare=False, repr=False)
    """What it outranks."""

    def __post_init__(self) -> None:
        """Derive once what each comparison asks for."""
        is_process = self.signal is not None or self.exit_code is not None
        object.__setattr__(self, "strength", _strength(self.reason, is_process=is_process))


def strength(cause: Cause) -> Strength:
    """What a stored cause outranks. A reason that only a newer release knows is taken for the end of a process."""
    if cause.reason not in set(Reason):
        return Strength.END
    return _strength(cause.reason, is_process=cause.signal is not None or cause.exit_code is not None)


def simultaneous_faults(cause: Fault, found: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Ends of other members at the same moment as the cause, as far as can be told, in order of members."""
    return _at_once(cause, found) if cause.strength is Strength.END else ()


def tied_to(cause: Cause, found: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The same for a stored cause."""
    return _at_once(cause, found) if strength(cause) is Strength.END else ()


def _at_once(cause: Fault | Cause, found: tuple[Fault, ...]) -> tuple[Fault, ...]:
    same = {
        fault.member: fault
        for fault in found
        if fault.strength is Strength.END
        and fault.member != cause.member
        and not (cause.exact and fault.exact and abs(fault.time - cause.time) > TIE_SECONDS)
    }
    return tuple(sorted(same.values(), key=lambda fault: fault.member))


def _strength(reason: str, *, is_process: bool) -> Strength:
    if reason == Reason.OOM_KILLED and not is_process:
        return Strength.CONTAINER  # The whole container, its supervisor with it.
    return default(reason).strength
