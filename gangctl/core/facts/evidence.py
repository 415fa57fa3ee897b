"""Evidence: one fault, and how strong it is.

    device > node > disruption of a pod > end of a container > end of a process > request

Among equals the earliest wins. A cause must not be stored as more than was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gangctl.api.incident import Cause
from gangctl.api.reasons import Reason
from gangctl.core.facts.defaults import DEFAULTS, Strength, default
from gangsidecar.wire import Level, LogMatch

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


def tied(cause: Fault, found: tuple[Fault, ...]) -> tuple[Fault, ...]:
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
