"""Changed copies of values. A plugin of mypy, ``tests/mypy_changes.py``, checks each field and its type."""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar

from gangctl.api.model import Model
from gangctl.api.recovery import RestartFrom
from gangctl.api.status import GangPhase, Status

_M = TypeVar("_M", bound=Model)


class SpecChanges(TypedDict, total=False):
    """Fields of the spec that the command line changes in a stored gang."""

    suspend: bool
    restart_token: str
    restart_from: RestartFrom


def changed(value: _M, **changes: Any) -> _M:
    """Return a copy of the value with these fields changed. A copy isn't validated."""
    return value.model_copy(update=changes)


def in_phase(status: Status, phase: GangPhase, phase_time: float, attempt: int, **changes: Any) -> Status:
    """Return a copy of the status in another phase or attempt. Only ``core/lifecycle/transitions.py`` may use it."""
    return status.model_copy(update={"phase": phase, "phase_time": phase_time, "attempt": attempt, **changes})
