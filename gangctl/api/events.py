"""The reasons that an Event can have: what each is about, whether it is a warning, and what to do.

The rule: a reason here is part of the API. It keeps its meaning and its type, since people write alerts on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gangctl.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class Told:
    """What is always the same of the Events with one reason."""

    action: str
    """What the controller does about it, as the Event's ``action``: a verb first, in CamelCase."""
    todo: str
    """What a person does about it, in a sentence."""
    is_warning: bool = False
    """Type Warning; else Normal."""


_NOTHING: Final = "Nothing."
_LOOK: Final = "Look at the cause in `gangctl status`; `gangctl trace` shows what each second went to."

EVENTS: Final[Mapping[Reason, Told]] = MappingProxyType(
    {
        Reason.SUBMITTED: Told("CreatePods", _NOTHING),
        Reason.TEMPLATE_REFUSED: Told(
            "RefusePods",
            "Correct the template or the quota, as the cluster's words say; roles can be changed while suspended.",
            is_warning=True,
        ),
        Reason.TEMPLATE_ACCEPTED: Told("AcceptPods", _NOTHING),
        Reason.PENDING: Told(
            "AwaitPods", "Nothing, unless it lasts: then look at what the scheduler says of the pods."
        ),
        Reason.GATHERING: Told("AwaitMembers", "Nothing, unless it lasts: the note says who is waited for."),
        Reason.RUNNING: Told("StartWorkers", _NOTHING),
        Reason.RESTARTING: Told("StopWorkers", _LOOK, is_warning=True),
        Reason.RESTARTED: Told("StartWorkers", "Nothing; the note says from which step, and whether it was charged."),
        Reason.SUSPENDED: Told("DeletePods", "Set `spec.suspend` to false to go on."),
        Reason.RESUMED: Told("CreatePods", _NOTHING),
        Reason.POD_REPLACED: Told("ReplacePod", "Nothing, unless the same node or device is named again and again."),
        Reason.GANG_RECREATED: Told("ReplacePods", _LOOK, is_warning=True),
        Reason.BARRIER_TIMEOUT: Told(
            "ReplacePods", "Look at the pods that are named: they did not answer in time.", is_warning=True
        ),
        Reason.SPARE_TOOK_RANK: Told("AssignRank", _NOTHING),
        Reason.STEP_REJECTED: Told(
            "RejectCheckpoint", "Look at that checkpoint: it is broken or incomplete for a rank.", is_warning=True
        ),
        Reason.CAUSE_CORRECTED: Told("CorrectCause", "Nothing; the incident has the better cause."),
        Reason.HANG: Told(
            "Observe",
            "Look at what the workers do; set `progress.onHang: Restart` to have such a gang restarted.",
            is_warning=True,
        ),
        Reason.RESTORE_POINT_IGNORED: Told(
            "Observe", "Let the framework load `GANG_RESTORE_STEP` from `GANG_RESTORE_PATH`.", is_warning=True
        ),
        Reason.LAUNCHER_FLAGS: Told("Observe", "Remove the flag from the worker's command.", is_warning=True),
        Reason.NO_RESTORE_POINT: Told(
            "StopGang",
            "Bring the checkpoints back, or accept a start from the beginning; change `spec.restartToken` to go on.",
            is_warning=True,
        ),
        Reason.UNSCHEDULABLE: Told(
            "StopGang", "Make room for the pods, or lengthen `recovery.schedulingTimeoutSeconds`.", is_warning=True
        ),
        Reason.REPLACEMENT_TIMEOUT: Told(
            "StopGang", "Make room for the missing pod; change `spec.restartToken` to go on.", is_warning=True
        ),
        Reason.SUCCEEDED: Told("FinishGang", _NOTHING),
        Reason.FAILED_BY_RULE: Told(
            "StopGang", "Correct what the rule names, and submit the gang again.", is_warning=True
        ),
        Reason.BUDGET_EXHAUSTED: Told(
            "StopGang", "Look at the causes of the last restarts: one fault comes back.", is_warning=True
        ),
        Reason.NO_PROGRESS: Told(
            "StopGang",
            "Look at what fails just after the restore point: data, code, or that checkpoint.",
            is_warning=True,
        ),
        Reason.DEADLINE_EXCEEDED: Told("StopGang", "Raise `spec.activeDeadlineSeconds`.", is_warning=True),
        Reason.HOLD_TIMEOUT: Told("StopGang", "Submit the gang again; it was held and nobody came.", is_warning=True),
    }
)
"""Every reason of an Event."""
_NAMED: Final[Mapping[str, Told]] = {reason.value: told for reason, told in EVENTS.items()}


def action(reason: str) -> str:
    """What the controller does about what has this reason; an Event without an action is refused."""
    told = _NAMED.get(reason)
    return reason if told is None else told.action


def is_warning(reason: str) -> bool:
    """Whether somebody should know: the type of an Event with this reason is Warning."""
    told = _NAMED.get(reason)
    return told is not None and told.is_warning
