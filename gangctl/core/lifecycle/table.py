"""The lifecycle of a gang, as a table: phase x what was found -> phase, and what happens to the attempt.

The rule: a gang changes its phase or its attempt only by a row of ``TRANSITIONS``. The attempt never goes down, and no
row leaves Succeeded or Failed. ``plan.py`` has one function for each row; ``docs/lifecycle.md`` is made from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gangctl.api.status import GangPhase


class Advance(StrEnum):
    """What a transition does to the attempt."""

    SAME = "same"
    NEXT = "+1"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row."""

    name: str
    """Of the function in ``plan.py``."""
    sources: tuple[GangPhase, ...]
    target: GangPhase
    attempt: Advance
    when: str
    """The condition. Names in backticks are functions of the core, fields of the spec, or fields of the status."""


STARTING: Final = (GangPhase.PENDING, GangPhase.GATHERING)
"""The attempt isn't started yet."""
ACTIVE: Final = (GangPhase.PENDING, GangPhase.GATHERING, GangPhase.RUNNING, GangPhase.HELD)
"""The gang has pods: it can be suspended, and its active deadline counts."""

SUBMIT: Final = Transition(
    "submit", (GangPhase.NEW,), GangPhase.PENDING, Advance.NEXT, "not `spec.suspend`, and `is_admitted`"
)
SUBMIT_SUSPENDED: Final = Transition(
    "submit_suspended", (GangPhase.NEW,), GangPhase.SUSPENDED, Advance.SAME, "`spec.suspend`, or not `is_admitted`"
)
START: Final = Transition(
    "start",
    STARTING,
    GangPhase.RUNNING,
    Advance.SAME,
    "`blocking_pods` finds no pod, `assign` finds a ready member for every place, `restore_point` is known, and, where "
    "the attempt belongs to an incident, `settle_cause` says Restarted and `backs_off_until` has passed",
)
RESTART: Final = Transition(
    "restart",
    (GangPhase.RUNNING,),
    GangPhase.GATHERING,
    Advance.NEXT,
    "`faults` finds a fault, or `hang` finds one and `spec.progress.onHang` is Restart, or `spec.restartToken` has "
    "changed and `waits_for` finds no gang; and not `needs_recreation`",
)
RESTART_WITH_NEW_PODS: Final = Transition(
    "restart_with_new_pods",
    (GangPhase.RUNNING,),
    GangPhase.PENDING,
    Advance.NEXT,
    "as `restart`, and `needs_recreation`: most members are `unfit`",
)
RECREATE: Final = Transition(
    "recreate",
    STARTING,
    GangPhase.PENDING,
    Advance.SAME,
    "`needs_recreation` while Gathering, or `settle_cause` says level Gang, or `barrier_deadline` passes for the "
    "second time, or `has_room` says that the status can't name those to replace",
)
SUCCEED: Final = Transition(
    "succeed",
    (*ACTIVE, GangPhase.SUSPENDED),
    GangPhase.SUCCEEDED,
    Advance.SAME,
    "`has_succeeded`",
)
FAIL: Final = Transition(
    "fail",
    STARTING,
    GangPhase.FAILED,
    Advance.SAME,
    "`settle_cause` says Failed, the evidence window is over, and `blocking_pods` finds no pod or the stop grace and "
    "its margin have passed; or `barrier_deadline` passes for the third time, or `gives_up_at` passes, or "
    "`start_obstacle` finds a pod, with `spec.recovery.onExhausted` Fail; or `replacement_timeout` passes with "
    "`spec.recovery.onReplacementTimeout` Fail",
)
HOLD: Final = Transition(
    "hold",
    STARTING,
    GangPhase.HELD,
    Advance.SAME,
    "`settle_cause` says Held, in place of Failed; or a deadline of `fail` passes with the option Hold in place of "
    "Fail; or `start_obstacle` finds a pod, with that option or after the template has worked; or "
    "`restore_point` finds no step until `barrier_deadline` passes",
)
FAIL_AT_DEADLINE: Final = Transition(
    "fail_at_deadline", ACTIVE, GangPhase.FAILED, Advance.SAME, "`active_deadline` passes"
)
SUSPEND: Final = Transition(
    "suspend",
    ACTIVE,
    GangPhase.SUSPENDED,
    Advance.SAME,
    "`is_to_be_suspended`: `spec.suspend`, or `spec.roles` have changed, or `is_called_back`",
)
GIVE_BACK: Final = Transition(
    "give_back",
    STARTING,
    GangPhase.SUSPENDED,
    Advance.SAME,
    "`replacement_timeout` passes with `spec.recovery.onReplacementTimeout` Suspend",
)
RESUME: Final = Transition(
    "resume",
    (GangPhase.SUSPENDED,),
    GangPhase.PENDING,
    Advance.NEXT,
    "not `spec.suspend`, not `status.givenBack`, `is_admitted`, every pod is gone, and `blocking_pods` finds none",
)
RESTART_HELD: Final = Transition(
    "restart_held", (GangPhase.HELD,), GangPhase.GATHERING, Advance.NEXT, "`spec.restartToken` has changed"
)
FAIL_HELD: Final = Transition("fail_held", (GangPhase.HELD,), GangPhase.FAILED, Advance.SAME, "`hold_timeout` passes")

TRANSITIONS: Final = (
    SUBMIT,
    SUBMIT_SUSPENDED,
    START,
    RESTART,
    RESTART_WITH_NEW_PODS,
    RECREATE,
    SUCCEED,
    FAIL,
    HOLD,
    FAIL_AT_DEADLINE,
    SUSPEND,
    GIVE_BACK,
    RESUME,
    RESTART_HELD,
    FAIL_HELD,
)
"""Every row, in the order of a gang's life."""
