"""Say what a gang waits for, and what is known of those that it waits for."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gangctl.api.model import Said
from gangctl.words.message import message
from gangctl.words.text import clock_time, counted, listed, moment, quoted


class WaitState(StrEnum):
    """How far a member or a pod has come that a gang waits for."""

    STOP_ORDERED = "StopOrdered"
    STOPPING = "Stopping"
    SILENT = "Silent"
    NEVER_HEARD = "NeverHeard"
    NOT_SEEN_TO_END = "NotSeenToEnd"
    CONNECTED = "Connected"
    NO_FREE_PORT = "NoFreePort"
    BACKING_OFF = "BackingOff"
    NO_POD = "NoPod"
    CANNOT_START = "CannotStart"
    UNREACHED = "Unreached"
    UNSCHEDULED = "Unscheduled"
    SCHEDULED = "Scheduled"
    STARTED = "Started"


_TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        WaitState.STOP_ORDERED: "got the order to stop at {since}",
        WaitState.STOPPING: "began to stop at {since}",
        WaitState.SILENT: "{have} not reported since {since}",
        WaitState.NEVER_HEARD: "{have} not reported to this controller since {since}",
        WaitState.NOT_SEEN_TO_END: "{have} not been seen to end since {since}",
        WaitState.CONNECTED: "{have} been connected, and not ready, since {since}",
        WaitState.NO_FREE_PORT: "found no free port from {detail} since {since}: other gangs or services on the same "
        "host have them, or what still runs in the pod; end those, or set spec.network.basePort and portCount",
        WaitState.BACKING_OFF: "will get a new pod at {since}",
        WaitState.NO_POD: "{have} had no pod since {since}",
        WaitState.CANNOT_START: "can't start: {detail}",
        WaitState.UNREACHED: "got no connection to the controller until {since}: {detail}",
        WaitState.UNSCHEDULED: "{have} waited for a node since {since}",
        WaitState.SCHEDULED: "got a node at {since}",
        WaitState.STARTED: "started at {since}, with no report since",
    }
)


@message
def known_of(
    members: Sequence[str],
    state: str,
    since: float,
    detail: str = "",
    todo: str = "",
    node_lost: bool = False,
    cannot_start: str = "",
    ended: str = "",
    alone: bool = False,
) -> str:
    """``alone``: the same is known of all members, which were named before."""
    who = listed(members) if not alone else "it" if len(members) == 1 else "they"
    have = "has" if len(members) == 1 else "have"
    text = _TEXTS[state].format(have=have, since=moment(since), detail=detail)
    if state == WaitState.NO_POD and detail:
        text += f": {detail}"
    if state == WaitState.SCHEDULED:
        text += f" ({ended or detail or 'images are pulled, or volumes mounted'})"
    elif ended:
        text += f" ({ended})"
    text += ", and its node does not answer" if node_lost and not cannot_start else ""
    text += f", and its container can't start: {cannot_start}" if cannot_start else ""
    return f"{who} {text}{f'; {todo}' if todo else ''}"


@message
def sidecar_ended(at: float, words: str) -> str:
    return f"the sidecar ended at {moment(at)}: {words}"


@message
def earlier_pod(member: str) -> str:
    return f"an earlier pod of {member}"


@message
def every_earlier_pod() -> str:
    return "every earlier pod"


# What an attempt waits for


@message
def members_awaited(stops: Sequence[str], starts: Sequence[str]) -> str:
    parts = [(stops, "to stop"), (starts, "to be ready")]
    return " and for ".join(f"{listed(names)} {what}" for names, what in parts if names)


@message
def attempt_waits(
    attempt: int,
    awaited: str,
    known: Sequence[str] = (),
    others: int = 0,
    trouble: bool = False,  # noqa: ARG001 - for those who read the value
    warning: str = "",
) -> str:
    return _joined(f"attempt {attempt} waits for {awaited}", known, others, warning)


@message
def starts_smaller_at(at: float) -> str:
    return f"it starts without them at {clock_time(at)} (recovery.shrinkAfterSeconds)"


@message
def too_small(role: str, least: int) -> str:
    return f"it can't start without them: {role} needs at least {counted(least, 'member')} (minReplicas)"


@message
def ending_waits(
    because: str, outcome: str, awaited: str, known: Sequence[str] = (), others: int = 0, warning: str = ""
) -> str:
    return _joined(f"{because}; before the gang is {outcome}, it waits for {awaited}", known, others, warning)


@message
def evidence_awaited(because: str, until: float, warning: str = "") -> str:
    return _joined(f"{because}; it waits for stronger evidence until {clock_time(until)}", (), 0, warning)


def _joined(head: str, known: Sequence[str], others: int, warning: str) -> str:
    more = f"other things are known of {others} more" if others else ""
    return "; ".join(filter(None, (head, *known, more, warning)))


@message
def end_reason_awaited(attempt: int, member: str) -> str:
    return f"attempt {attempt} waits for the cluster to show why the container of {member} ended"


@message
def held_back(attempt: int, until: float, because: str, name: str, back_off: str = "") -> str:
    how_come = f"because {back_off}" if back_off else "so that other disruptions can join it"
    return (
        f"attempt {attempt} waits until {clock_time(until)}, {how_come}; cause: {because}; "
        f"`gangctl restart {name}` starts it now"
    )


@message
def restarts_without_step(restarts: int, is_known: bool, looks_for_checkpoints: bool = False) -> str:
    who = "the last restart" if restarts == 1 else f"the last {counted(restarts, 'restart')}"
    if is_known:
        return f"{who} made no step"
    return f"{who} reported no step{' and left no newer checkpoint' if looks_for_checkpoints else ''}"


# What keeps a pod from running


@message
def cannot_start(members: Sequence[str], detail: str, todo: str = "") -> str:
    return f"{members[0]} {'and others ' if len(members) > 1 else ''}can't start: {detail}{f'; {todo}' if todo else ''}"


@message
def can_never_start(members: Sequence[str], detail: str, todo: str) -> str:
    return f"{listed(members)} can't start, however often it is tried: {detail}; {todo}"


@message
def unscheduled(seconds: float, trouble: str = "") -> str:
    return f"not every pod was scheduled within {seconds} s{f'; {trouble}' if trouble else ''}"


@message
def replacement_late(seconds: float, trouble: str = "") -> str:
    return f"a replacement pod was not ready within {seconds} s{f'; {trouble}' if trouble else ''}"


_HOW: Final = "to change the roles, set spec.suspend to true, apply them, and set it back to false"


@message
def pods_refused(words: str) -> str:
    return f"the cluster refuses the gang's pods: {words}"


@message
def refused_while(refused: str, state: str) -> str:
    """``state``: Suspended, Running, Partial (some pods are there) or None."""
    match state:
        case "Suspended":
            then = "Nothing would be created if it were resumed; the roles can be changed now"
        case "Running":
            then = f"What runs goes on, but a pod that has to be replaced would not come back; {_HOW}"
        case "Partial":
            then = f"The pods that are there wait, and the missing ones are tried again; {_HOW}"
        case _:
            then = f"Nothing is created until that changes; {_HOW}"
    return f"{refused}. {then}"


@message
def pods_accepted() -> str:
    return "the cluster takes the gang's pods now"


# Queues and groups


@message
def queue_awaited(queue: str, words: str = "", known: bool = True) -> str:
    if not known:
        return (
            f"it waits for admission by queue {queue}: Kueue's Workloads can't be read now; its pods are created "
            "when they can and the queue admits it"
        )
    return f"it waits for admission by queue {queue}{quoted(words)}; its pods are created when the queue admits it"


@message
def queue_calls_back(queue: str, words: str | None) -> str:
    if words is None:
        return f"queue {queue} has no Workload of the gang"
    return f"queue {queue} no longer admits it{quoted(words)}"


@message
def queue_left() -> str:
    return "suspended; it waits in no queue"


@message
def group_awaited(attempt: int, group: str, least: int, have: int, gangs: Sequence[str]) -> str:
    others = f"; {listed(gangs)} {'lacks' if len(gangs) == 1 else 'lack'} some" if gangs else ""
    has = f"{counted(have, 'gang')} {'has' if have == 1 else 'have'}"
    return f"attempt {attempt} waits until {least} gangs of group {group} have all their pods: {has}{others}"


@message
def group_late(seconds: float, awaited: str) -> str:
    return f"the group's gangs were not there within {seconds} s (recovery.schedulingTimeoutSeconds): {awaited}"


@message
def turn_awaited(gangs: Sequence[str], most: int, group: str, attempt: int) -> str:
    return (
        f"the restart that restartToken asks for waits for {listed(gangs)} to be available, because at most "
        f"{counted(most, 'gang')} of group {group} may be unavailable at once; attempt {attempt} runs on"
    )


@message
def replica(name: str, phase: str) -> str:
    return f"{name} ({phase})"


@message
def turn_dropped(attempt: int) -> str:
    return f"attempt {attempt} runs on: restartToken asks for no restart any more"


@message
def turn_overdue(gangs: Sequence[str], seconds: float, group: str) -> str:
    it, is_ = ("it", "is") if len(gangs) == 1 else ("them", "are")
    return (
        f"the restart that restartToken asks for has waited for {seconds} s and waits on: {listed(gangs)} of group "
        f"{group} {is_} not available; mend or delete {it}, or remove spec.rolling of this gang to restart it now"
    )


@message
def roles_wait(attempt: int, roles: Sequence[str], starts: Sequence[str], probes: Sequence[str]) -> str:
    pods = "pod" if len(probes) == 1 else "pods"
    awaited = [
        *([f"for the {'worker' if len(starts) == 1 else 'workers'} of {listed(starts)} to start"] if starts else ()),
        *([f"for the {pods} of {listed(probes)} to be ready"] if probes else ()),
    ]
    todo = f"; kubectl describe the {pods} to see why, if that lasts" if probes else ""
    return f"attempt {attempt} runs in part: the workers of {listed(roles)} wait {' and '.join(awaited)}{todo}"


# Restore points


@message
def checkpoints_awaited(attempt: int, error: str = "") -> str:
    return f"attempt {attempt} waits for the checkpoints to be listed{f'; {error}' if error else ''}"


@message
def restore_point_awaited(attempt: int, expected: str, found: str) -> str:
    return f"attempt {attempt} waits for a restore point that every rank can load: {expected}; {found}"


@message
def checkpoints_not_listed(error: str = "") -> str:
    return f"the checkpoints could not be listed: {error or 'no member has answered'}"


@message
def no_restore_point(expected: str, found: str, looked: str = "") -> str:
    """``looked``: the member that has looked into the directories last."""
    last = f"; {looked} looked last" if looked else ""
    return f"no restore point that every rank can load was found: {expected}, but {found}{last}"


_WAITS: Final = frozenset({attempt_waits.__name__, checkpoints_awaited.__name__, restore_point_awaited.__name__})


def is_wait(said: Said | None, attempt: int) -> bool:
    """Return whether a status says what this attempt waits for."""
    return said is not None and said.name in _WAITS and said.parameters.get("attempt") == attempt


def says_trouble(said: Said | None) -> bool:
    """Return whether a status says that waiting alone will hardly help."""
    return said is not None and (said.name == refused_while.__name__ or bool(said.parameters.get("trouble")))
