"""Evidence: one fault, how strong it is, and how it is stored as the cause of an incident.

The rule: a device outranks a node, a node the disruption of a pod, that the end of a container, that the end of a
process, and that a mere request; among equals the earliest wins. Never is a cause stored as more than was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gangctl.api.reasons import Reason
from gangctl.api.signals import SIGNALS
from gangctl.api.status import Cause
from gangsidecar.wire import Level

TIE_SECONDS: Final = 0.05
"""Ends closer than this are one moment: ages are exact, but how long a report travelled is not known."""


class Strength(IntEnum):
    """What outranks what as the cause of an incident."""

    REQUEST = 1
    END = 2
    CONTAINER = 3
    DISRUPTION = 4
    NODE = 5
    DEVICE = 6


STRENGTHS: Final = {
    Reason.DEVICE_LOST: Strength.DEVICE,
    Reason.NODE_LOST: Strength.NODE,
    Reason.EVICTED: Strength.DISRUPTION,
    Reason.PREEMPTED: Strength.DISRUPTION,
    Reason.DISRUPTED: Strength.DISRUPTION,
    Reason.POD_DELETED: Strength.DISRUPTION,
    Reason.POD_FAILED: Strength.CONTAINER,
    Reason.CONTAINER_RESTARTED: Strength.CONTAINER,
    Reason.EXIT_CODE: Strength.END,
    Reason.EXIT_CODE_HIDDEN: Strength.END,
    Reason.SIGNAL: Strength.END,
    Reason.OOM_KILLED: Strength.END,
    Reason.START_FAILED: Strength.END,
}
"""Anything else (a request, a hang, a missing restore point) is evidence of the weakest kind."""

_NAMES: Final = {number: name for name, number in SIGNALS.items()}

DISRUPTION_REASONS: Final = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.EVICTED,
    "TerminationByKubelet": Reason.DISRUPTED,
    "DeletionByTaintManager": Reason.NODE_LOST,
    "DeletionByPodGC": Reason.NODE_LOST,
}
"""Reasons of the pod condition DisruptionTarget (KEP-3329) -> ours."""


VAGUE_REASONS: Final = frozenset({Reason.DISRUPTED, Reason.POD_DELETED, Reason.POD_FAILED, Reason.CONTAINER_RESTARTED})
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

    @property
    def strength(self) -> Strength:
        """What it outranks."""
        if self.reason is Reason.OOM_KILLED and self.signal is None and self.exit_code is None:
            return Strength.CONTAINER  # The whole container, its supervisor with it.
        return STRENGTHS.get(self.reason, Strength.REQUEST)


def tied(cause: Fault, found: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Ends at the same moment as the cause, as far as can be told, the cause included, in order of members."""
    if cause.strength is not Strength.END:
        return (cause,)
    same = [fault for fault in found if fault.strength is Strength.END and abs(fault.time - cause.time) <= TIE_SECONDS]
    return tuple(sorted({fault.member: fault for fault in [*same, cause]}.values(), key=lambda fault: fault.member))


def as_cause(fault: Fault, rule: str | None, ties: tuple[Fault, ...] = ()) -> Cause:
    """The fault as it is stored in an incident."""
    return Cause(
        reason=fault.reason,
        member=fault.member,
        incarnation=fault.incarnation,
        rank=fault.rank,
        exit_code=fault.exit_code,
        signal=None if fault.signal is None else signal_name(fault.signal),
        device=fault.device,
        node=fault.node,
        rule=rule,
        message=fault.message,
        time=fault.time,
        tied=tuple(tie.member for tie in ties[:8]) if len(ties) > 1 else (),
    )


def from_cause(cause: Cause) -> Fault:
    """The stored cause as a fault again, as far as it was stored."""
    return Fault(
        reason=_reason(cause.reason),
        member=cause.member,
        time=cause.time,
        incarnation=cause.incarnation,
        rank=cause.rank,
        exit_code=cause.exit_code,
        signal=None if cause.signal is None else signal_number(cause.signal),
        device=cause.device,
        node=cause.node,
        message=cause.message,
    )


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG64 and the like where there is no name."""
    return _NAMES.get(number, f"SIG{number}")


def signal_number(name: str) -> int:
    """9 for SIGKILL; 0 for what is no signal's name."""
    number = name.removeprefix("SIG")
    return SIGNALS.get(name, int(number) if number.isdecimal() else 0)


def _reason(name: str) -> Reason:
    """The reason that a status names; one that only a newer release knows is taken for the plainest."""
    try:
        return Reason(name)
    except ValueError:
        return Reason.EXIT_CODE
