"""Fitness: whether a pod can go on, by its reports, its silence, its starts and its node: lost, faulty or drained.

Fitness: whether a member's pod can go on, and whether the member is ready for the attempt.

    unfit(m) = the pod is gone, or m has a twin, or a device is unhealthy, or the node is lost or to be left, or the pod
               is being deleted or has ended, or its supervisor did not connect in time, was told to end, is stuck or
               done
    ready(m) = m is connected, and its pod said Ready(attempt), and not unfit(m)

What makes a pod unfit is a fault where it happens to a member that runs (``faults.py``), and leads to a new pod
wherever it happens (``policy/pods.py``). A pod that is only disrupted soon must not count as unfit.

Silence: when it is evidence that a member is not heard, and when it is not.

The rule: silence alone is no evidence. It counts against a supervisor that this leader has heard, and against one that
it has never heard only while it hears another pod of the gang: only then is it known that pods can reach it. A node
counts as lost only when this leader's own watch has shown it so for the whole grace, and its pod is silent as long::

    silent_since(p)  the last report of p's supervisor; where this leader has heard none, the begin of listening
    lost(p)          both p's node and p's supervisor have been silent for NODE_GRACE_SECONDS
    counts_since(p)  the begin of listening where p was heard, else since when another pod of the gang is connected

While the brake is on (``policy/brake.py``), silence alone doesn't count. A node that the cluster shows as lost does: it
does not depend on the controller's connection to sidecars.

Silence must never be a hang, nor end a worker that may be training. Whatever does not count is told to people
(``record/degraded.py``), for as long as it takes.

Failed starts: what the cluster says of a container that can't start, and which starts can never work.

The rule: users read the words of the container runtime at the first failure. A start can't work if the image lacks what
is to be run, or can't run it: each try of it fails in the same way, on every node. Whatever may be mended from outside
(a pull, a Secret, a device, a node) is waited for. What isn't known here must count as that.

Nodes: when what others say of a node counts against the gang's pods on it.

The rule: only news count. What a node showed before the pod came to it, or before the attempt ran, was known to those
who put the pod there, and a gang that has restarted since has lived with it::

    counts(signal, pod) = it came after the pod was scheduled, and while the attempt that runs or failed ran
    drained(node)       = it is cordoned, and a pod of the gang on it is being evicted through the eviction API

That devices are missing at the node counts only against a gang that has more of them there than are left.
That a signal is absent says nothing. A cordon alone is no evidence: what runs there may stay.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangctl.api.reasons import Reason
from gangctl.api.status import ENDED, GangPhase
from gangctl.core.facts.evidence import DEFAULTS
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.progress import need_no_pod
from gangctl.core.facts.world import NodeAnswer, NodeSignal, Pod, Shortage, StartFailure
from gangctl.words import faults
from gangctl.words.faults import pod_rejected
from gangctl.words.message import Message
from gangctl.words.starts import REASON_ADVICE, REJECTION_ADVICE, SAME, Correction
from gangsidecar.wire import Phase, Report

# Fitness


NODE_EVIDENCE: Final = frozenset(reason for reason, row in DEFAULTS.items() if row.against_node)
"""Evidence against the node itself."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a member needs a new pod."""

    reason: str
    message: str
    against_node: bool = False
    """Whether it is evidence against the pod's node, which the new pod must avoid then."""


@once
def starting_members(gang: Gang) -> frozenset[str]:
    """The members that are not heard yet, and of which nothing else is to be said: they have time left for it."""
    lost, now, times = gang.observed.lost_nodes, gang.now, must_report(gang)
    return frozenset(
        [
            pod.member
            for pod in gang.never_heard
            if pod.is_sound and pod.node not in lost and now < times.get(pod.member, math.inf)
        ]
    )


@once
def ready(gang: Gang) -> frozenset[str]:
    """The members whose current pods reported Ready for the status' attempt and can run it."""
    attempt, conspicuous = gang.status.attempt, gang.conspicuous
    return frozenset(
        [
            member
            for member, heard in gang.heard_by_member.items()
            if heard.ready_for == attempt
            and heard.connected
            and (member not in conspicuous or defect(gang, member) is None)
        ]
    )


def defect(gang: Gang, member: str) -> Defect | None:
    """Why the member's current pod can't go on; None if it can, or if it isn't created yet."""
    pod, report = gang.pods.get(member), gang.report(member)
    if pod is None and not gang.is_fresh(member) and member not in gang.without_quota:
        return Defect(Reason.POD_DELETED, faults.pod_gone())
    if gang.unseen and has_twin(gang, member):
        return Defect(Reason.POD_DELETED, faults.pod_has_twin())
    if pod is None:
        return None
    found = _of_pod(gang, pod)
    if found is None and gang.status.phase is not GangPhase.RUNNING:
        found = _of_silence(gang, pod)
    if found is None and report is not None:
        found = next(of_report(report), None)
    return found


def unusable(gang: Gang, pod: Pod) -> Defect | None:
    """Why nothing runs in the pod any more, or nothing will soon; None if it goes on."""
    if on_lost_node(gang, pod):
        return _defect(Reason.NODE_LOST, faults.node_silent(pod.node))
    if pod.deleting and not pod.is_evicted:
        return _defect(Reason.POD_DELETED, faults.pod_deleted())
    if pod.terminated:
        ended = faults.pod_ended(reason_text(pod) if pod.reason else "")
        return _defect(Reason.POD_FAILED, rejection(pod) or ended)
    return None


def of_report(report: Report) -> Iterator[Defect]:
    """What the pod's supervisor itself says."""
    if report.terminating:
        yield _defect(Reason.DISRUPTED, faults.pod_told_to_end())
    if report.phase is Phase.STUCK:
        yield _defect(Reason.STUCK, faults.process_stuck())
    if report.phase is Phase.DONE:
        yield _defect(Reason.POD_FAILED, faults.supervisor_ending())


@once
def must_report(gang: Gang) -> Mapping[str, float]:
    """When each member whose supervisor hasn't reported counts as failed to start, if that is counted now.

    It is one that was never heard, or one whose containers have ended since: they may not start again. Time without a
    leader doesn't count: a new one has heard of no member yet. Nor does the silence of a pod that runs while this
    leader hears no pod of the gang: a new pod would be as silent.
    """
    times = {
        pod.member: _must_report_by(gang, pod)
        for pod in gang.unheard
        if pod.started_at is None or pod.uid not in gang.heard
    }
    return {name: time for name, time in times.items() if time is not None}


def _must_report_by(gang: Gang, pod: Pod) -> float | None:
    listening, heard = gang.observed.listening_since, gang.heard.get(pod.uid)
    if heard is None and ends_again_and_again(gang, pod):
        return max(pod.created_at, listening + SETTLING_SECONDS)
    since = listening if pod.started_at is None else counts_since(gang, pod)
    if pod.scheduled_at is None or since is None:
        return None
    timeout = gang.spec.recovery.pod_start_timeout_seconds
    if heard is None:
        return max(pod.scheduled_at, since) + timeout
    # Each try of a container that can't start is another end of it, so the time is not counted from there.
    return max(gang.status.phase_time + timeout, since + timeout, (pod.ended_at or 0.0) + SETTLING_SECONDS)


def has_twin(gang: Gang, member: str) -> bool:
    """Whether a supervisor speaks for the member's current incarnation from a pod that isn't there any more.

    The pods of one incarnation are told apart by directives, and not by what is kept of an incarnation.
    """
    return (member, gang.incarnation(member)) in gang.unseen


def of_node(gang: Gang, pod: Pod) -> Defect | None:
    """What the pod's node shows for which the pod leaves it at once; None if it may stay."""
    signal = leaves(gang, pod)
    if signal is not None:
        reason = Reason.NODE_DRAINED if signal.answer is NodeAnswer.DRAIN else Reason.NODE_UNHEALTHY
        return Defect(reason, faults.node_shows(pod.node, signal.what), against_node=True)
    if pod.node in drained_nodes(gang):
        return Defect(Reason.NODE_DRAINED, faults.node_drained(pod.node))
    return None


def _of_node_at_restart(gang: Gang, pod: Pod) -> Defect | None:
    """The same where the gang restarts anyway. The node may be the only one that there is, so it isn't ruled out."""
    signal = leaves_at_restart(gang, pod) if gang.status.phase is GangPhase.GATHERING else None
    return None if signal is None else Defect(Reason.NODE_UNHEALTHY, faults.node_shows(pod.node, signal.what))


def _of_pod(gang: Gang, pod: Pod) -> Defect | None:
    if pod.is_sound and pod.node not in gang.observed.lost_nodes and pod.node not in gang.observed.nodes:
        return None
    sick = next((device for device in pod.devices if device.health == "Unhealthy"), None)
    if sick is not None:
        return _defect(Reason.DEVICE_LOST, sick.described())
    return unusable(gang, pod) or of_node(gang, pod) or _of_node_at_restart(gang, pod)


def _of_silence(gang: Gang, pod: Pod) -> Defect | None:
    late = must_report(gang).get(pod.member)
    if late is None or gang.now < late:
        return None
    if pod.uid not in gang.heard and ends_again_and_again(gang, pod):
        why = reason_text(pod) if pod.detail else ""
        return _defect(Reason.START_FAILED, faults.silent_over_restarts(pod.restarts, why))
    timeout = gang.spec.recovery.pod_start_timeout_seconds
    if pod.uid in gang.heard:
        return _defect(Reason.START_FAILED, faults.containers_do_not_start_again(reason_text(pod)))
    why = reason_text(pod) if pod.reason else ""
    return _defect(Reason.START_FAILED, faults.did_not_connect(timeout, why))


def _defect(reason: Reason, message: str) -> Defect:
    return Defect(reason, message, reason in NODE_EVIDENCE)


# Silence


SETTLING_SECONDS: Final = 60.0
"""A new leader listens this long before any deadline of the barrier counts."""
NODE_GRACE_SECONDS: Final = 30.0
"""A sidecar connects again within 5 s, a kubelet that was restarted posts its node's status within 10 s."""
SILENT_RESTARTS: Final = 3
"""So many container restarts without a word of a supervisor are StartFailed (a volume that executes nothing)."""
STEADY_SECONDS: Final = 60.0
"""A container that has run for this long does not end again and again."""


def silent_since(gang: Gang, pod: Pod) -> float | None:
    """Since when its supervisor has not been heard; None while it is connected."""
    heard = gang.heard.get(pod.uid)
    if heard is None:
        return _since_start(gang, pod)
    return None if heard.connected else heard.at


def _since_start(gang: Gang, pod: Pod) -> float:
    return max(pod.started_at or pod.created_at, gang.observed.listening_since)


def lost_at(gang: Gang, pod: Pod) -> float | None:
    """When the pod's node counts as lost if neither of them is heard again; None while that isn't counted."""
    node = gang.observed.lost_nodes.get(pod.node)
    heard = gang.heard.get(pod.uid)
    if node is None or (heard is not None and heard.connected):
        return None
    silent = heard.at if heard is not None else max(pod.started_at or pod.created_at, gang.watching_since)
    return max(node, silent, gang.observed.relayed_since) + NODE_GRACE_SECONDS


def on_lost_node(gang: Gang, pod: Pod) -> bool:
    """Whether the pod's node counts as lost."""
    at = lost_at(gang, pod)
    return at is not None and gang.now >= at


def next_loss(gang: Gang) -> float | None:
    """When the next node counts as lost if nothing but time passes."""
    if not gang.observed.lost_nodes:
        return None
    times = (lost_at(gang, pod) for pod in gang.observed.pods)
    return min((at for at in times if at is not None and at > gang.now), default=None)


def counts_since(gang: Gang, pod: Pod) -> float | None:
    """Since when it counts that the pod's supervisor is silent; None = it doesn't count."""
    return gang.observed.listening_since if pod.uid in gang.heard else never_heard_counts_since(gang)


@once
def never_heard_counts_since(gang: Gang) -> float | None:
    """The same of each pod that this leader has never heard."""
    began = gang.observed.listening_since
    return None if gang.hearing_since is None else max(began, gang.hearing_since)


def ends_again_and_again(gang: Gang, pod: Pod) -> bool:
    """Whether the cluster shows that its containers don't stay: a supervisor that is not heard then never will be."""
    return pod.restarts >= SILENT_RESTARTS and (pod.started_at is None or gang.now < pod.started_at + STEADY_SECONDS)


@once
def silent(gang: Gang) -> list[tuple[float, str]]:
    """Return (since when, member) of each member that should be connected and is not, the longest silent first.

    A member should be connected whose pod runs and goes on, unless it has finished.
    """
    if gang.status.phase in {GangPhase.NEW, GangPhase.SUSPENDED, *ENDED}:
        return []
    lost, done, heard = gang.observed.lost_nodes, need_no_pod(gang), gang.heard
    alive = [
        pod
        for pod in gang.unheard
        if pod.started_at is not None
        and not (pod.terminated or pod.deleting or pod.node in lost)
        and pod.member not in done
    ]
    never_heard = [pod for pod in alive if pod.uid not in heard and not ends_again_and_again(gang, pod)]
    found = [(_since_start(gang, pod), pod.member) for pod in never_heard]
    found += [(one.at, pod.member) for pod in alive if (one := heard.get(pod.uid)) is not None and one.done_in < 0]
    return sorted(found)


# Failed starts


NEVER_MADE: Final = frozenset({"InvalidImageName", "CreateContainerError", "CreateContainerConfigError"})
"""Reasons of a start for which no container was made: the kubelet doesn't count its tries."""
NOT_EXECUTABLE: Final = frozenset({126, 127})
"""Exit codes of a runtime, or of a shell, for a command that can't be executed."""
_WORDS: Final = re.compile(
    r'exec: "[^"]*": '  # runc: executable file not found in $PATH, permission denied, no such file, is a directory
    r"|exec format error"  # of another architecture
    r"|executable file \S+ not found"  # crun
    r"|open executable: "  # crun
    r"|exec user process caused"  # runc before 1.1: the interpreter of a script is missing
    r"|error finding executable"  # gVisor
    r"|argument list too long"
    r"|chdir to cwd "  # runc and containerd: workingDir is a file, or can't be entered
    r"|no matching entries in passwd file"  # the user that the image or the securityContext names
    r"|unable to find user"
    r"|runAsNonRoot and image will run as root"
    r"|cannot verify user is non-root",
    re.IGNORECASE,
)
"""What container runtimes say of a start that can't work: they have no codes for it."""
_TOO_LONG: Final = re.compile(r"argument list too long", re.IGNORECASE)
_OURS: Final = re.compile(r'exec: "/run/gang/supervisor": permission denied', re.IGNORECASE)
"""The worker's container could not execute gangctl's supervisor, which every user may: the node is to blame."""


def cannot_work(failure: StartFailure | None) -> bool:
    """Whether a start that failed like this fails in each try."""
    if failure is None:
        return False
    if failure.reason == "InvalidImageName" or failure.exit_code in NOT_EXECUTABLE:
        return True
    return _WORDS.search(failure.message) is not None


def correction(failure: StartFailure | None) -> Correction:
    """Return what makes a start possible that can't work as it is."""
    message = "" if failure is None else failure.message
    if _TOO_LONG.search(message):
        return Correction.SHORTEN
    return Correction.REMOUNT if _OURS.search(message) else Correction.TEMPLATE


def reason_text(pod: Pod) -> str:
    """Return why the pod can't start or has ended, as the cluster says it: ``StartError: exec: "train": not found``."""
    reason = SAME.get(pod.reason, pod.reason)
    return f"{reason}: {pod.detail}" if pod.detail else reason


def rejection(pod: Pod) -> Message | None:
    """Return why its node did not take the pod, and what to check; None if it did, or if that isn't known."""
    todo = checks(pod.reason)
    return pod_rejected(pod.node, reason_text(pod), todo) if todo else None


def checks(reason: str) -> str:
    """Return what to check after a kubelet has rejected a pod for this reason; empty if that isn't known."""
    return next((todo for known, todo in REJECTION_ADVICE.items() if reason.startswith(known)), "")


def start_advice(pod: Pod) -> str:
    """Return what a user can do about a pod that can't start; empty if that isn't known."""
    if cannot_work(pod.start_failure):
        return correction(pod.start_failure)
    return REASON_ADVICE.get(SAME.get(pod.reason, pod.reason), "")


# Nodes


SLACK_SECONDS: Final = 5.0
"""A signal and the fault that it explains come in any order: one that is so much older than the fault counts."""


def leaves(gang: Gang, pod: Pod) -> NodeSignal | None:
    """The strongest signal for which the pod leaves its node at once; None if there is none."""
    now = (one for one in _against(gang, pod) if one.answer in {NodeAnswer.LEAVE, NodeAnswer.DRAIN})
    return next((one for one in now if one.since > max(_came(pod), _began(gang))), None)


def leaves_at_restart(gang: Gang, pod: Pod) -> NodeSignal | None:
    """The signal for which the pod leaves its node when the gang restarts anyway; None if there is none."""
    found = _against(gang, pod)
    return next((one for one in found if one.answer is not NodeAnswer.NOTE and one.since > _came(pod)), None)


@once
def drained_nodes(gang: Gang) -> frozenset[str]:
    """The nodes that are being emptied: the pods on them go one after the other, as their budgets allow."""
    cordoned = {name for name, state in gang.observed.nodes.items() if state.cordoned}
    if not cordoned:
        return frozenset()
    return frozenset(pod.node for pod in gang.observed.pods if pod.node in cordoned and _is_evicted(pod))


def noted(gang: Gang) -> list[tuple[str, NodeSignal]]:
    """(member, signal) of each member whose node shows something for which nothing is done now."""
    nodes = gang.observed.nodes
    if not nodes:
        return []
    shown = [(member, pod, _against(gang, pod)) for member, pod in gang.pods.items() if pod.node in nodes]
    return [(member, found[0]) for member, pod, found in shown if found and leaves(gang, pod) is None]


def _against(gang: Gang, pod: Pod) -> Sequence[NodeSignal]:
    """What the pod's node shows that concerns the pod."""
    state = gang.observed.nodes.get(pod.node)
    signals = () if state is None else state.signals
    return [
        one
        for one in signals
        if one.pod in {"", pod.uid}
        and (one.shortage is None or 0 < one.shortage.allocatable < _held(gang, pod, one.shortage))
    ]


def _held(gang: Gang, pod: Pod, shortage: Shortage) -> int:
    """How many devices of the resource the gang's pods on the pod's node have; 0 if the pod has none."""
    there = [one for one in gang.pods.values() if one.node == pod.node]
    own = _devices(gang, pod, shortage.resource)
    return own and sum(_devices(gang, one, shortage.resource) for one in there)


def _devices(gang: Gang, pod: Pod, resource: str) -> int:
    member = gang.members.get(pod.member)
    resources = (member.role.worker.model_extra or {}).get("resources") if member is not None else None
    amount = str(((resources or {}).get("limits") or {}).get(resource, 0))
    return int(amount) if amount.isdecimal() else 0


def _is_evicted(pod: Pod) -> bool:
    return any(one[:2] == ("DisruptionTarget", "True") and one[2] == "EvictionByEvictionAPI" for one in pod.conditions)


def _came(pod: Pod) -> float:
    """When the pod was on its node for certain: clusters write whole seconds, without the rest."""
    return (pod.created_at if pod.scheduled_at is None else pod.scheduled_at) + 1


def _began(gang: Gang) -> float:
    """Since when signals count, whenever the pod came."""
    status = gang.status
    if status.phase is GangPhase.RUNNING:
        return status.phase_time
    if status.phase is GangPhase.GATHERING and status.incidents and not status.incidents[0].settled:
        return status.incidents[0].time - SLACK_SECONDS
    return 0.0
