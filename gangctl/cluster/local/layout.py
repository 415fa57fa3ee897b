"""Paths of local mode below one state directory, and the lock that allows it only one controller."""

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final, Protocol

from gangctl.api.names import parse_pod_name
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.atomic_files import open_locked
from gangsidecar.wire import CACHES_FOLDER, CLIENT_FOLDER, SUPERVISOR_ARCHIVE, WORKERS_FILE

# Paths of local mode below one state directory (default: ``.gangctl`` in the working directory).
#
#     run.lock  controller.lock  controller.log  controller.url  live.json  supervisor.pyz  client/gangclient/
#     gangs/NAME/      gangjob.json (spec and status)  removed.json  events.jsonl  caches/  before/
#     gangs/NAME/pods/POD/   pod.json  token  supervisor.pyz  supervisor.json  workers.json
#                            termination-log  supervisor.log  sidecar.log  worker.log
#
# Sockets are elsewhere, because their whole path must fit in 107 bytes.


DEFAULT_STATE_DIRECTORY: Final = Path(".gangctl")
_GANG_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")


class _Folder(Protocol):
    @property
    def path(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class _In:
    """The path of this name in a folder."""

    name: str

    def __get__(self, folder: _Folder, _kind: type[_Folder]) -> Path:
        return folder.path / self.name


@dataclass(frozen=True, slots=True)
class PodFolder:
    """Files of one pod. Its logs are rotated: see ``log_files.py``."""

    path: Path

    record = _In("pod.json")
    """The stored pod."""
    token = _In("token")
    """The token that the sidecar sends to the controller."""
    program = _In(SUPERVISOR_ARCHIVE)
    """The pod's own copy of the supervisor, so that another release of gangctl doesn't change an existing pod."""
    state_file = _In("supervisor.json")
    """The state that the supervisor keeps for its next session."""
    workers = _In(WORKERS_FILE)
    """Which process of the worker has which rank, as its supervisor says."""
    termination_log = _In("termination-log")
    """How the worker ended, as its supervisor leaves it: what a kubelet takes for the termination message."""
    sidecar_log = _In("sidecar.log")
    worker_log = _In("worker.log")
    """Output of the worker, and of nothing else."""
    supervisor_log = _In("supervisor.log")

    @property
    def caches(self) -> Path:
        """The caches of the workers' compilers, for all pods of the gang."""
        return GangFolder(self.path.parents[1]).caches


@dataclass(frozen=True, slots=True)
class GangFolder:
    """Files of one gang."""

    path: Path

    job = _In("gangjob.json")
    """The whole object: metadata, spec and status."""
    removed = _In("removed.json")
    """The object of a gang that was removed while its logs were kept: it tells their readers members and ranks."""
    lock = _In("gangjob.lock")
    """Lock file that a writer of the object holds."""
    events = _In("events.jsonl")
    """Events, one JSON object a line, oldest first."""
    pods = _In("pods")
    """Folder with one folder for each pod."""
    before = _In("before")
    """What that folder was of the gang of this name before this one: for its logs."""
    caches = _In(CACHES_FOLDER)
    """Folder for what compilers of the workers keep."""

    def pod(self, name: str) -> PodFolder:
        return PodFolder(self.pods / name)


def pods_by_member(folder: Path) -> dict[str, list[PodFolder]]:
    """The pods in a folder such as that of a gang, by member, oldest first."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return {}
    found = []
    for name in names:
        with suppress(ValueError):
            pod = parse_pod_name(name)
            found.append((pod.member, pod.incarnation, PodFolder(folder / name)))
    members: dict[str, list[PodFolder]] = {}
    for member, _, one in sorted(found, key=itemgetter(0, 1)):
        members.setdefault(member, []).append(one)
    return members


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Files of one local cluster."""

    path: Path

    lock = _In("controller.lock")
    """Lock file that the controller holds while it runs; contains its pid."""
    run_lock = _In("run.lock")
    """Lock file that ``gangctl run`` holds while it runs; contains its pid."""
    log = _In("controller.log")
    url = _In("controller.url")
    """URL of the controller, for sidecars."""
    live = _In("live.json")
    """Address and token of the controller's live endpoint; only the owner can read it."""
    program = _In(SUPERVISOR_ARCHIVE)
    """The supervisor, copied into each new pod."""
    client = _In(CLIENT_FOLDER)
    """The folder of ``gangclient``, for the workers' PYTHONPATH."""
    gangs = _In("gangs")
    """Folder with one folder for each gang."""

    def gang(self, name: str) -> GangFolder:
        """Files of the gang of this name.

        Raises:
            Terminal: the name is invalid, and might be a path.
        """
        if not _GANG_NAME.fullmatch(name):
            raise Terminal(
                f"{name!r:.80} is not a valid name of a gang: use at most 42 lower-case letters, digits and dashes"
            )
        return GangFolder(self.gangs / name)


ASKING_SECONDS: Final = 0.05
"""A process that asks which one holds a lock has it for a moment."""
_SHARED: Final = Path("/tmp")  # noqa: S108 - only the owner can enter the folder in it
"""Not $TMPDIR, which may be too long, or $XDG_RUNTIME_DIR: a gang outlives the session that both may end with."""


def runtime_directory() -> Path:
    """The folder for sockets: with a short path, owned by this user, closed to others.

    Raises:
        Terminal: the folder can't be created, or is open to other users.
    """
    path = _SHARED / f"gangctl-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise Terminal(f"{path} can't be created for the sockets of local mode: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Terminal(f"{path} must be a directory that only its owner, user {os.getuid()}, can enter; remove it")
    return path


def only_controller(state: StateDirectory) -> AbstractContextManager[None]:
    """Hold the controller lock of a state directory: a second controller would start every process twice."""
    return only_process(state.lock, lambda holder: f"process {holder} is already the controller of {state.path}")


@contextmanager
def only_process(lock: Path, busy: Callable[[str], str]) -> Iterator[None]:
    """Hold a lock file, with this process's pid in it, until the end of the block, or of the process at the latest.

    Raises:
        Terminal: another process holds it; ``busy`` is the message, given that process.
        Retryable: the lock can't be opened or locked.
    """
    try:
        try:
            descriptor = open_locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(ASKING_SECONDS)
            descriptor = open_locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock.read_text(errors="replace").strip() or "unknown"
        raise Terminal(busy(holder)) from None
    try:
        with suppress(OSError):  # The disk is full: the pid is only for messages.
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
