"""The stored record of a local pod: its spec, its processes and its state; and its processes that run."""

import fcntl
import shutil
from contextlib import suppress
from enum import StrEnum
from typing import TypedDict

from pydantic import ValidationError

from gangctl.api.model import Model
from gangctl.api.names import LOCAL_NODE
from gangctl.cluster.errors import ClusterError, Terminal
from gangctl.cluster.local import process
from gangctl.cluster.local.atomic_files import read_file, write_file
from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory
from gangctl.cluster.local.process import LocalProcess
from gangctl.cluster.local.worker_ranks import worker_ranks
from gangctl.core.facts.world import LastWords, Pod
from gangctl.core.policy.launch import memory_folder
from gangsidecar.wire import from_words

LOOPBACK = "127.0.0.1"
_ADVICE = "the gang is not managed until you restore the file, or end its processes and remove the file"


class PodRecord(Model):
    """Everything that another controller process needs to continue with the pod."""

    name: str
    uid: str
    gang: str
    """UID of the GangJob."""
    member: str
    incarnation: int
    created: float
    """In seconds since the epoch, like all times here."""
    token: str
    """Token that the sidecar sends to the controller."""
    sockets: str
    """The folder of its unix sockets."""
    command: tuple[str, ...]
    environment: dict[str, str]
    """Environment of the template, which is added to the controller's environment."""
    directory: str
    """The working directory of the worker."""
    grace_seconds: int = 30
    """From SIGTERM to SIGKILL when the pod is deleted."""
    sidecar: LocalProcess | None = None
    supervisor: LocalProcess | None = None
    started: float | None = None
    """Time of the last start of the supervisor; absent while it does not run."""
    ended: float | None = None
    """Time of the last end of the supervisor; absent if it never ended."""
    message: str = ""
    """What the supervisor left in its termination log when it last ended."""
    restarts: int = 0
    """Number of restarts of the supervisor."""
    deleting: bool = False
    terminated: bool = False
    """No process of the pod runs, and none will be started."""
    reason: str = ""


class RecordChanges(TypedDict, total=False):
    """Fields that change during a pod's life."""

    grace_seconds: int
    sidecar: LocalProcess | None
    supervisor: LocalProcess | None
    started: float | None
    ended: float | None
    message: str
    restarts: int
    deleting: bool
    terminated: bool
    reason: str


def load_pod(folder: PodFolder) -> PodRecord | None:
    """Load the stored pod; None if the folder has none.

    Raises:
        Terminal: the file can't be read or isn't a pod.
    """
    try:
        content, _ = read_file(folder.record)
        return PodRecord.model_validate_json(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Terminal(f"{folder.record} can't be read: {error.strerror}; {_ADVICE}") from error
    except ValidationError as error:
        raise Terminal(f"{folder.record} isn't a pod: {error.errors(include_url=False)[0]['msg']}; {_ADVICE}") from None


def load_all(folder: GangFolder) -> tuple[PodRecord, ...]:
    """All stored pods of a gang, sorted by name."""
    records, wrong = load_readable(folder)
    if wrong:
        raise wrong[0]
    return tuple(records)


def load_readable(folder: GangFolder) -> tuple[list[PodRecord], list[ClusterError]]:
    """The stored pods of a gang that can be read, sorted by name, and the errors of the others."""
    records: list[PodRecord] = []
    wrong: list[ClusterError] = []
    for path in sorted(folder.pods.iterdir()) if folder.pods.is_dir() else []:
        try:
            one = load_pod(PodFolder(path))
        except ClusterError as error:
            wrong.append(error)
        else:
            records += [] if one is None else [one]
    return records, wrong


def save_pod(folder: PodFolder, record: PodRecord, *, durable: bool) -> None:
    text = record.model_dump_json(by_alias=True, exclude_none=True, indent=1)
    write_file(folder.record, text.encode(), durable=durable)


def remove_what_lived(record: PodRecord) -> None:
    """Remove what a pod has only as long as it runs: its sockets, and its checkpoints in memory."""
    for folder in (record.sockets, memory_folder(record.uid)):
        shutil.rmtree(folder, ignore_errors=True)


def projection(record: PodRecord) -> Pod:
    """The pod as the core sees it. A local pod is scheduled at once."""
    return Pod(
        name=record.name,
        uid=record.uid,
        member=record.member,
        incarnation=record.incarnation,
        node=LOCAL_NODE,
        created_at=record.created,
        scheduled_at=record.created,
        started_at=record.started,
        ended_at=record.ended,
        last_words=_last_words(record),
        restarts=record.restarts,
        deleting=record.deleting,
        terminated=record.terminated,
        reason=record.reason,
    )


def _last_words(record: PodRecord) -> LastWords | None:
    ends = from_words(record.message)
    return LastWords(record.ended, ends) if ends and record.ended is not None else None


# Finds the processes of a member's pod, and the controller.


class PodProcess(StrEnum):
    """A kind of process of a pod."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"
    SIDECAR = "sidecar"


def pod_of(folder: GangFolder, member: str) -> PodRecord:
    """The member's newest pod that has not ended."""
    running = [one for one in load_all(folder) if not one.terminated]
    found = [one for one in running if one.member == member]
    if not found:
        members = sorted({one.member for one in running})
        raise Terminal(f"no pod of member {member} runs; members with running pods: {', '.join(members) or 'none'}")
    return max(found, key=lambda one: one.incarnation)


def live_processes(pod: PodRecord, files: PodFolder, target: PodProcess) -> dict[LocalProcess, int | None]:
    """The running processes of a kind, with their ranks.

    For the worker: those that the supervisor started, without their children.
    """
    one = pod.sidecar if target is PodProcess.SIDECAR else pod.supervisor
    if one is None or not process.is_alive(one):
        return {}
    if target is not PodProcess.WORKER:
        return {one: None}
    ranks = worker_ranks(str(files.workers))
    return {child: ranks[child.pid] for child in process.children(one) if child.pid in ranks}


def controller_pid(state: StateDirectory) -> int | None:
    """The process that holds the controller lock; None if no process does."""
    with suppress(OSError), state.lock.open() as file:
        text = file.read().strip()  # It outlives a killed controller.
        try:
            if text:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(text)
    return None
