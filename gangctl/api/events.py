"""The reasons of Events: the action of the controller, the type, and what a user should do.

The rule: a reason is part of the API. It keeps its meaning and its type, because users write alerts on both.
"""

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


def _warning(action: str, todo: str) -> Told:
    return Told(action, todo, is_warning=True)


_NOTHING: Final = "Nothing."
_LOOK: Final = "See `gangctl status` and `gangctl trace`."

EVENTS: Final[Mapping[Reason, Told]] = MappingProxyType(
    {
        Reason.SUBMITTED: Told("CreatePods", _NOTHING),
        Reason.TEMPLATE_REFUSED: _warning(
            "RefusePods", "Correct the quota, or suspend the gang and correct the template."
        ),
        Reason.TEMPLATE_ACCEPTED: Told("AcceptPods", _NOTHING),
        Reason.PENDING: Told("AwaitPods", "Nothing. If it lasts, check the pods' events."),
        Reason.GATHERING: Told("AwaitMembers", "Nothing. If it lasts, check the members in the note."),
        Reason.RUNNING: Told("StartWorkers", _NOTHING),
        Reason.RESTARTING: _warning("StopWorkers", _LOOK),
        Reason.RESTART_BACK_OFF: _warning("DelayRestart", "Correct the cause; `gangctl restart NAME` ends the wait."),
        Reason.CHECKING: Told("CheckMembers", "Nothing. `gangctl trace` shows how long it took."),
        Reason.CHECK_FAILED: _warning("CheckMembers", "Run the same check on the node in the note."),
        Reason.CHECK_FAULTY: _warning(
            "CheckMembers", "Run the check by hand in a healthy pod. Correct it, or what members share."
        ),
        Reason.RESTART_WAITS: Told("DelayRestart", "Nothing. If it lasts, check the gangs in the note."),
        Reason.GROUP_INCOMPLETE: Told("DelayStart", "Nothing. If it lasts, check the gangs in the note."),
        Reason.ROLES_WAIT: Told("DelayStart", "Nothing. If it lasts, check the members in the note."),
        Reason.RESTARTED: Told("StartWorkers", "Nothing. The note has the step and the charge."),
        Reason.SUSPENDED: Told("DeletePods", "Set `spec.suspend` to false to continue."),
        Reason.QUEUED: Told("AwaitQueue", "Nothing. If it lasts, see `kubectl describe workload`."),
        Reason.QUOTA_CHANGED: Told("FollowQueue", "Nothing. See `kubectl describe workload`."),
        Reason.RESUMED: Told("CreatePods", _NOTHING),
        Reason.POD_REPLACED: Told("ReplacePod", "Nothing. If a node or device recurs, check it."),
        Reason.GANG_RECREATED: _warning("ReplacePods", _LOOK),
        Reason.BARRIER_TIMEOUT: _warning("ReplacePods", "Check the pods in the note."),
        Reason.SIGNAL_KEPT: _warning(
            "StopWorkers", "Let the script end on SIGTERM, or lower `recovery.stopGracePeriodSeconds`."
        ),
        Reason.SPARE_TOOK_RANK: Told("AssignRank", _NOTHING),
        Reason.STEP_REJECTED: _warning("RejectCheckpoint", "Check whether it is corrupt or incomplete."),
        Reason.WORKER_OUTPUT: Told("ReadLog", "`gangctl trace` has the lines before it."),
        Reason.CAUSE_CORRECTED: Told("CorrectCause", "Nothing."),
        Reason.HANG: _warning(
            "Observe", "Check what workers do. With `progress.onHang: Restart`, a hung gang restarts."
        ),
        Reason.RESTORE_POINT_IGNORED: _warning(
            "Observe", "Make the framework load `GANG_RESTORE_STEP` from `GANG_RESTORE_PATH`."
        ),
        Reason.MEMBERS_SILENT: _warning(
            "Observe", "Check the sidecar's log, and the network from the pods to the controller."
        ),
        Reason.NO_MEMBER_CONNECTS: _warning(
            "Observe", "Check NetworkPolicies, DNS, the controller's Service and CA; the sidecar's log has the reason."
        ),
        Reason.BRAKED: _warning(
            "Observe", "Check NetworkPolicies, DNS, the controller's Service and CA; its log has the numbers."
        ),
        Reason.GANGS_FAIL_TOGETHER: _warning(
            "Observe", "Check what they share: storage, a registry, a license server, the network."
        ),
        Reason.UNREADABLE: _warning("LeaveGang", "Upgrade the controller, or correct the field in the note."),
        Reason.ACTION_FAILS: _warning(
            "Retry", "Correct the obstacle: another pod with that name, a webhook, a quota, the API server."
        ),
        Reason.LAUNCHER_FLAGS: _warning("Observe", "Remove the flag from the worker's command."),
        Reason.PIPELINE_HIDES_FAILURE: _warning("Observe", "Write `set -o pipefail` before it, in bash."),
        Reason.PRELOAD_FAILED: _warning("Observe", "Correct the list, or install the module in the image."),
        Reason.FORKS_LATE: _warning(
            "Observe", "Wait, or restart the gang. If it happens again, set `start: {type: Exec}`."
        ),
        Reason.ROLLING_STALLED: _warning(
            "Observe", "Repair or delete the gangs in the note. Without `spec.rolling` the gang restarts at once."
        ),
        Reason.SMALLER: _warning("Observe", "`gangctl why` shows what is missing. The gang grows by itself."),
        Reason.NODE_SUSPECT: _warning(
            "Observe", "Check the node. `gangctl restart` leaves it if the node signal says so."
        ),
        Reason.DEVICE_DEGRADED: _warning("Observe", "Check clocks, temperature and links of the devices."),
        Reason.NODE_AT_FAULT: _warning("HandOver", "Check the node. gangctl does not cordon it."),
        Reason.DEVICE_GUARD_EVICTED: _warning("EvictPod", "Check the device. The owner replaces the pod."),
        Reason.DEVICE_GUARD_REFUSED: _warning(
            "EvictPod", "Check the obstacle, such as a PodDisruptionBudget, or delete the pod."
        ),
        Reason.NO_RESTORE_POINT: _warning(
            "StopGang", "Make a step available and run `gangctl restart`, or use `--from-step` or `--from-beginning`."
        ),
        Reason.UNSCHEDULABLE: _warning(
            "StopGang", "Free capacity for the pods, or raise `recovery.schedulingTimeoutSeconds`."
        ),
        Reason.REPLACEMENT_TIMEOUT: _warning("StopGang", "Free capacity, and change `spec.restartToken` to continue."),
        Reason.SUCCEEDED: Told("FinishGang", _NOTHING),
        Reason.FAILED_BY_RULE: _warning("StopGang", "Fix the fault, and submit the gang again."),
        Reason.BUDGET_EXHAUSTED: _warning("StopGang", "Check the causes of the last restarts."),
        Reason.START_FAILED: _warning(
            "StopGang",
            "Correct image, command or securityContext, and submit the gang again; suspend a held gang to change it.",
        ),
        Reason.NO_PROGRESS: _warning(
            "StopGang", "Check what follows the restore point: data, code, or the checkpoint."
        ),
        Reason.DEADLINE_EXCEEDED: _warning("StopGang", "Raise `spec.activeDeadlineSeconds`."),
        Reason.HOLD_TIMEOUT: _warning("StopGang", "Submit the gang again."),
    }
)
"""Every reason of an Event."""
_NAMED: Final[Mapping[str, Told]] = {reason.value: told for reason, told in EVENTS.items()}


def action(reason: str) -> str:
    """The action of an Event with this reason. The API server rejects an Event without an action."""
    told = _NAMED.get(reason)
    return reason if told is None else told.action


def todo(reason: str) -> str:
    """What a user should do, in sentences; empty for a reason that no Event has."""
    told = _NAMED.get(reason)
    return "" if told is None else told.todo


def is_warning(reason: str) -> bool:
    told = _NAMED.get(reason)
    return told is not None and told.is_warning
