"""Read a pod's containers: when the worker's started and ended, and why it can't start.

The rule: of a pod's containers, only the worker's and those of gangctl are judged. The pod says in an annotation which
is the worker's. A container that a user puts beside the worker, or before it as an init container, may end, fail or
restart as it likes: that must neither be a fault nor keep a deadline from running. Two things are the whole pod's: it
has terminated when all of its containers have, and the user sees whatever keeps the worker from starting.
"""

from datetime import datetime
from typing import Final

from gangctl.api.names import ANNOTATION_WORKER, SIDECAR
from gangctl.core.facts.world import LastWords, SidecarEnd, StartFailure
from gangctl.kubernetes.schema import (
    RawCondition,
    RawContainer,
    RawContainerStatus,
    RawPod,
    RawRunning,
    RawState,
    RawTerminated,
    RawWaiting,
)
from gangsidecar.wire import UNREACHED, from_words

WORDS: Final = 300
"""So many characters of the cluster's words are kept: the last ones, since runtimes put the cause at the end."""
_WRITE_PHASES: Final = frozenset({"DeletionByPodGC", "DeletionByTaintManager", "DeletionByDeviceTaintManager"})
"""Reasons of DisruptionTarget with which the control plane, and not the kubelet, ends a pod whose node may be lost."""
STARTING_REASONS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that are no problem."""
_AFTER_END: Final = STARTING_REASONS | {"CrashLoopBackOff", "RunContainerError"}
"""Reasons of a waiting container whose newest end says more."""
_NEVER_RAN: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of an end with which a runtime says that it could not execute the command."""
_NOT_EXECUTED: Final = range(126, 129)
"""Exit codes with which runtimes say the same without a reason. The supervisor itself ends with 0 or by a signal."""


def epoch_time(time: datetime | None) -> float:
    """The time since the epoch; 0 if there is none."""
    return 0.0 if time is None else time.timestamp()


def worker(raw: RawPod) -> str | None:
    """Name of the worker's container; None if the pod doesn't tell, so that it may be any."""
    return raw.metadata.annotations.get(ANNOTATION_WORKER)


def restart_count(raw: RawPod) -> int:
    """The highest ``restartCount`` of the worker's container and gangctl's."""
    own = [one for one in raw.status.init_container_statuses if one.name == SIDECAR]
    return max([one.restart_count for one in (*own, *_workers(raw))], default=0)


def started_at(raw: RawPod) -> float | None:
    """The last start of the worker's container and of gangctl's sidecar; None while one of them doesn't run."""
    statuses = {one.name: one for one in (*raw.status.init_container_statuses, *_workers(raw))}
    name = worker(raw)
    needed = [one.name for one in raw.spec.containers] if name is None else [name]
    needed += [one.name for one in raw.spec.init_containers if one.name == SIDECAR]
    times: list[float] = []
    for one in needed:
        status = statuses.get(one)
        if status is None:
            return None
        match status.state:
            case RawState(running=RawRunning(started_at=time)) if status.started is not False:
                times.append(epoch_time(time))
            case RawState(terminated=RawTerminated(exit_code=0, started_at=time)):
                times.append(epoch_time(time))
            case _:
                return None
    return max(times, default=None)


def newest_end(raw: RawPod) -> RawTerminated | None:
    """The newest end of the worker's container.

    Of ends in the same second, it is the end with the most specific reason.
    """
    specific = {"Error": False, "Completed": False}
    return max(_ends(raw), key=lambda end: (epoch_time(end.finished_at), specific.get(end.reason, True)), default=None)


def last_words(raw: RawPod) -> LastWords | None:
    """Read what the newest supervisor left as its last words: only the worker's container has such a message."""
    found = [LastWords(epoch_time(end.finished_at), ends) for end in _ends(raw) if (ends := from_words(end.message))]
    return max(found, key=lambda words: words.at, default=None)


def is_terminated(raw: RawPod) -> bool:
    """Return whether no container of the pod runs, or will run again.

    Ended containers alone don't prove it, since the kubelet may start them again: when all containers restart, all have
    ended for a moment. A phase alone proves it unless another controller has written it, for a node that is lost: then
    each container must have ended, which only a kubelet writes.
    """
    statuses = (*raw.status.init_container_statuses, *raw.status.container_statuses)
    if any(one.state.running is not None for one in statuses):
        return False
    is_over = raw.status.phase in {"Succeeded", "Failed"}
    reasons = {one.reason for one in raw.status.conditions if one.type == "DisruptionTarget"}
    if is_over and not reasons & _WRITE_PHASES:
        return True
    ended = {one.name for one in statuses if one.state.terminated is not None}
    is_ending = is_over or raw.metadata.deletion_timestamp is not None
    return is_ending and {one.name for one in (*raw.spec.init_containers, *raw.spec.containers)} <= ended


def start_failure(raw: RawPod) -> StartFailure | None:
    """Return how the newest start of the worker's container failed: none of its processes ran. None if it didn't."""
    for one in _workers(raw):
        waiting, end = one.state.waiting, one.state.terminated or one.last_state.terminated
        if one.state.running is not None:
            continue
        if waiting is not None and waiting.reason not in _AFTER_END:
            return StartFailure(waiting.reason, _cut(_pull_error(waiting)))
        if end is not None and end.reason in _NEVER_RAN:
            return StartFailure(end.reason, _cut(end.message), end.exit_code)
        if end is not None and end.exit_code in _NOT_EXECUTED and not from_words(end.message):
            said = f"exit code {end.exit_code}{f': {end.message}' if end.message else ''}"
            return StartFailure(end.reason, _cut(said), end.exit_code)
        if waiting is not None and waiting.reason == "RunContainerError":
            return StartFailure(waiting.reason, _cut(waiting.message))
    return None


def reason(raw: RawPod, scheduled: RawCondition | None) -> tuple[str, str]:
    """Return why the pod ended or its worker can't start, in Kubernetes' words, and what it says beside that."""
    status, failure = raw.status, start_failure(raw)
    if status.reason:
        return status.reason, _cut(status.message).rstrip(".")
    for one in status.init_container_statuses:  # A user's sidecar may keep the worker from starting.
        if one.state.waiting is not None and one.state.waiting.reason not in STARTING_REASONS:
            return one.state.waiting.reason, _cut(f"container {one.name}{_of_other(one)}")
    if failure is not None:
        return failure.reason, failure.message
    waiting = [one.state.waiting.reason for one in _workers(raw) if one.state.waiting is not None]
    ended = [one.state.terminated.reason for one in _judged(raw) if one.state.terminated is not None]
    found = [one for one in waiting if one not in STARTING_REASONS]
    found += sorted((one for one in ended if one and one != "Completed"), key=lambda one: one == "Error")
    if not found and scheduled is not None and scheduled.status != "True":
        return scheduled.message or scheduled.reason, ""
    return next(iter(found), ""), ""


def start_wait(raw: RawPod) -> str:
    """Say what the worker's container waits for while nothing is wrong; empty if it was started, or that isn't known.

    Init containers run one after the other, and a sidecar until it has started.
    """
    if any(one.state.waiting is None for one in _workers(raw)):
        return ""
    stays = {one.name for one in raw.spec.init_containers if one.restart_policy == "Always"}
    for one in raw.status.init_container_statuses:
        if one.state.running is None or (one.name in stays and one.started):
            continue
        if one.name in stays:
            return f"sidecar {one.name} has not started yet"
        return f"init container {one.name} still runs"
    return ""


def sidecar_end(raw: RawPod) -> SidecarEnd | None:
    """Return how gangctl's sidecar ended when it last did so by itself: what it could not do, or how it failed."""
    one = next((one for one in raw.status.init_container_statuses if one.name == SIDECAR), None)
    end = None if one is None else one.state.terminated or one.last_state.terminated
    if end is None or end.exit_code == 0:
        return None
    said = end.message.strip()
    unreached = end.exit_code == UNREACHED and bool(said)
    if not unreached:
        reason = "" if end.reason in {"", "Error"} else f" ({end.reason})"
        said = f"exit code {end.exit_code}{reason}{f': {said}' if said else ''}"
    return SidecarEnd(epoch_time(end.finished_at), _cut(said), unreached)


def _workers(raw: RawPod) -> tuple[RawContainerStatus, ...]:
    """The worker's container; any container, in a pod that doesn't name it."""
    name, statuses = worker(raw), raw.status.container_statuses
    return statuses if name is None else tuple(one for one in statuses if one.name == name)


def _judged(raw: RawPod) -> tuple[RawContainerStatus, ...]:
    """The worker's container, and what has to end before it starts: a pod may have failed for it."""
    beside = {one.name for one in raw.spec.init_containers if _is_beside(one)}
    return (*(one for one in raw.status.init_container_statuses if one.name not in beside), *_workers(raw))


def _is_beside(one: RawContainer) -> bool:
    return one.restart_policy == "Always" and one.name != SIDECAR


def _ends(raw: RawPod) -> list[RawTerminated]:
    ends = (end for one in _workers(raw) for end in (one.state.terminated, one.last_state.terminated))
    return [end for end in ends if end is not None and end.finished_at is not None]


def _of_other(one: RawContainerStatus) -> str:
    """Return what is known of a container that isn't the worker's, after its name."""
    waiting, end = one.state.waiting, one.last_state.terminated
    if waiting is not None and waiting.reason not in _AFTER_END:
        return f": {_pull_error(waiting)}" if _pull_error(waiting) else ""
    if end is None:
        return ""
    return f" ended with exit code {end.exit_code}{f': {end.message}' if end.message else ''}"


def _pull_error(waiting: RawWaiting) -> str:
    """Return what the kubelet says. Between two pulls it says that it waits, and then the error, or nothing more."""
    if waiting.reason != "ImagePullBackOff":
        return waiting.message
    return waiting.message.partition(": ErrImagePull: ")[2]


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= WORDS else f"…{text[1 - WORDS :]}"
