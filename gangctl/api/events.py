"""The reasons of Events: the action of the controller, the type, and what a user should do.

The rule: a reason is part of the API. It keeps its meaning and its type, because users write alerts on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gangctl.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class Told:
    """The properties that all Events with the same reason share."""

    action: str
    """What the controller does, for the Event's ``action``: in CamelCase, starting with a verb."""
    todo: str
    """What a user should do, in a sentence."""
    is_warning: bool = False
    """Whether the type is Warning; otherwise it is Normal."""


_NOTHING: Final = "Nothing."
_LOOK: Final = "See `gangctl status` and `gangctl trace`."

EVENTS: Final[Mapping[Reason, Told]] = MappingProxyType(
    {
        Reason.SUBMITTED: Told("CreatePods", _NOTHING),
        Reason.TEMPLATE_REFUSED: Told(
            "RefusePods",
            "Correct the quota, or suspend the gang and correct the template.",
            is_warning=True,
        ),
        Reason.TEMPLATE_ACCEPTED: Told("AcceptPods", _NOTHING),
        Reason.PENDING: Told("AwaitPods", "Nothing. If it lasts, check the pods' events."),
        Reason.GATHERING: Told("AwaitMembers", "Nothing. If it lasts, check the members in the note."),
        Reason.RUNNING: Told("StartWorkers", _NOTHING),
        Reason.RESTARTING: Told("StopWorkers", _LOOK, is_warning=True),
        Reason.RESTART_BACK_OFF: Told(
            "DelayRestart",
            "Correct the cause; `gangctl restart NAME` ends the wait.",
            is_warning=True,
        ),
        Reason.CHECKING: Told("CheckMembers", "Nothing. `gangctl trace` shows how long it took."),
        Reason.CHECK_FAILED: Told("CheckMembers", "Run the same check on the node in the note.", is_warning=True),
        Reason.CHECK_FAULTY: Told(
            "CheckMembers",
            "Run the check by hand in a healthy pod. Correct it, or what members share.",
            is_warning=True,
        ),
        Reason.RESTART_WAITS: Told("DelayRestart", "Nothing. If it lasts, check the gangs in the note."),
        Reason.ROLES_WAIT: Told("DelayStart", "Nothing. If it lasts, check the members in the note."),
        Reason.RESTARTED: Told("StartWorkers", "Nothing. The note has the step and the charge."),
        Reason.SUSPENDED: Told("DeletePods", "Set `spec.suspend` to false to continue."),
        Reason.QUEUED: Told("AwaitQueue", "Nothing. If it lasts, see `kubectl describe workload`."),
        Reason.QUOTA_CHANGED: Told("FollowQueue", "Nothing. See `kubectl describe workload`."),
        Reason.RESUMED: Told("CreatePods", _NOTHING),
        Reason.POD_REPLACED: Told("ReplacePod", "Nothing. If a node or device recurs, check it."),
        Reason.GANG_RECREATED: Told("ReplacePods", _LOOK, is_warning=True),
        Reason.BARRIER_TIMEOUT: Told("ReplacePods", "Check the pods in the note.", is_warning=True),
        Reason.SIGNAL_KEPT: Told(
            "StopWorkers",
            "Let the script end on SIGTERM, or lower `recovery.stopGracePeriodSeconds`.",
            is_warning=True,
        ),
        Reason.SPARE_TOOK_RANK: Told("AssignRank", _NOTHING),
        Reason.STEP_REJECTED: Told("RejectCheckpoint", "Check whether it is corrupt or incomplete.", is_warning=True),
        Reason.WORKER_OUTPUT: Told("ReadLog", "`gangctl trace` has the lines before it."),
        Reason.CAUSE_CORRECTED: Told("CorrectCause", "Nothing."),
        Reason.HANG: Told(
            "Observe",
            "Check what workers do. With `progress.onHang: Restart`, a hung gang restarts.",
            is_warning=True,
        ),
        Reason.RESTORE_POINT_IGNORED: Told(
            "Observe", "Make the framework load `GANG_RESTORE_STEP` from `GANG_RESTORE_PATH`.", is_warning=True
        ),
        Reason.MEMBERS_SILENT: Told(
            "Observe",
            "Check the sidecar's log, and the network from the pods to the controller.",
            is_warning=True,
        ),
        Reason.NO_MEMBER_CONNECTS: Told(
            "Observe",
            "Check NetworkPolicies, DNS, the controller's Service and CA; the sidecar's log has the reason.",
            is_warning=True,
        ),
        Reason.BRAKED: Told(
            "Observe",
            "Check NetworkPolicies, DNS, the controller's Service and CA; its log has the numbers.",
            is_warning=True,
        ),
        Reason.GANGS_FAIL_TOGETHER: Told(
            "Observe",
            "Check what they share: storage, a registry, a license server, the network.",
            is_warning=True,
        ),
        Reason.UNREADABLE: Told(
            "LeaveGang", "Upgrade the controller, or correct the field in the note.", is_warning=True
        ),
        Reason.ACTION_FAILS: Told(
            "Retry",
            "Correct the obstacle: another pod with that name, a webhook, a quota, the API server.",
            is_warning=True,
        ),
        Reason.LAUNCHER_FLAGS: Told("Observe", "Remove the flag from the worker's command.", is_warning=True),
        Reason.PIPELINE_HIDES_FAILURE: Told("Observe", "Write `set -o pipefail` before it, in bash.", is_warning=True),
        Reason.PRELOAD_FAILED: Told(
            "Observe",
            "Correct the list, or install the module in the image.",
            is_warning=True,
        ),
        Reason.FORKS_LATE: Told(
            "Observe", "Wait, or restart the gang. If it happens again, set `start: {type: Exec}`.", is_warning=True
        ),
        Reason.ROLLING_STALLED: Told(
            "Observe",
            "Repair or delete the gangs in the note. Without `spec.rolling` the gang restarts at once.",
            is_warning=True,
        ),
        Reason.SMALLER: Told(
            "Observe",
            "`gangctl why` shows what is missing. The gang grows by itself.",
            is_warning=True,
        ),
        Reason.NODE_SUSPECT: Told(
            "Observe",
            "Check the node. `gangctl restart` leaves it if the node signal says so.",
            is_warning=True,
        ),
        Reason.DEVICE_DEGRADED: Told(
            "Observe",
            "Check clocks, temperature and links of the devices.",
            is_warning=True,
        ),
        Reason.NODE_AT_FAULT: Told(
            "HandOver",
            "Check the node. gangctl does not cordon it.",
            is_warning=True,
        ),
        Reason.DEVICE_GUARD_EVICTED: Told("EvictPod", "Check the device. The owner replaces the pod.", is_warning=True),
        Reason.DEVICE_GUARD_REFUSED: Told(
            "EvictPod",
            "Check the obstacle, such as a PodDisruptionBudget, or delete the pod.",
            is_warning=True,
        ),
        Reason.NO_RESTORE_POINT: Told(
            "StopGang",
            "Make a step available and run `gangctl restart`, or use `--from-step` or `--from-beginning`.",
            is_warning=True,
        ),
        Reason.UNSCHEDULABLE: Told(
            "StopGang", "Free capacity for the pods, or raise `recovery.schedulingTimeoutSeconds`.", is_warning=True
        ),
        Reason.REPLACEMENT_TIMEOUT: Told(
            "StopGang", "Free capacity, and change `spec.restartToken` to continue.", is_warning=True
        ),
        Reason.SUCCEEDED: Told("FinishGang", _NOTHING),
        Reason.FAILED_BY_RULE: Told("StopGang", "Fix the fault, and submit the gang again.", is_warning=True),
        Reason.BUDGET_EXHAUSTED: Told("StopGang", "Check the causes of the last restarts.", is_warning=True),
        Reason.START_FAILED: Told(
            "StopGang",
            "Correct image, command or securityContext, and submit the gang again; suspend a held gang to change it.",
            is_warning=True,
        ),
        Reason.NO_PROGRESS: Told(
            "StopGang",
            "Check what follows the restore point: data, code, or the checkpoint.",
            is_warning=True,
        ),
        Reason.DEADLINE_EXCEEDED: Told("StopGang", "Raise `spec.activeDeadlineSeconds`.", is_warning=True),
        Reason.HOLD_TIMEOUT: Told("StopGang", "Submit the gang again.", is_warning=True),
    }
)
"""Every reason of an Event."""
_NAMED: Final[Mapping[str, Told]] = {reason.value: told for reason, told in EVENTS.items()}


def action(reason: str) -> str:
    """The action of an Event with this reason. The API server rejects an Event without an action."""
    told = _NAMED.get(reason)
    return reason if told is None else told.action


def is_warning(reason: str) -> bool:
    """Return whether the type of an Event with this reason is Warning."""
    told = _NAMED.get(reason)
    return told is not None and told.is_warning
