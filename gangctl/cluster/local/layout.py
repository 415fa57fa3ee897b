"""Paths of local mode below one state directory, and the lock that allows it only one controller."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.atomic_files import unwritable
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


@dataclass(frozen=True, slots=True)
class PodFolder:
    """Files of one pod. Its logs are rotated: see ``log_files.py``."""

    path: Path

    @property
    def record(self) -> Path:
        """The stored pod."""
        return self.path / "pod.json"

    @property
    def token(self) -> Path:
        """The token that the sidecar sends to the controller."""
        return self.path / "token"

    @property
    def program(self) -> Path:
        """The pod's own copy of the supervisor, so that another release of gangctl doesn't change an existing pod."""
        return self.path / SUPERVISOR_ARCHIVE

    @property
    def state_file(self) -> Path:
        """The state that the supervisor keeps for its next session."""
        return self.path / "supervisor.json"

    @property
    def workers(self) -> Path:
        """Which process of the worker has which rank, as its supervisor says."""
        return self.path / WORKERS_FILE

    @property
    def termination_log(self) -> Path:
        """How the worker ended, as its supervisor leaves it: what a kubelet takes for the termination message."""
        return self.path / "termination-log"

    @property
    def caches(self) -> Path:
        """The caches of the workers' compilers, for all pods of the gang."""
        return GangFolder(self.path.parents[1]).caches

    @property
    def sidecar_log(self) -> Path:
        """Output of the sidecar."""
        return self.path / "sidecar.log"

    @property
    def worker_log(self) -> Path:
        """Output of the worker, and of nothing else."""
        return self.path / "worker.log"

    @property
    def supervisor_log(self) -> Path:
        """The log of the supervisor."""
        return self.path / "supervisor.log"


@dataclass(frozen=True, slots=True)
class GangFolder:
    """Files of one gang."""

    path: Path

    @property
    def job(self) -> Path:
        """The whole object: metadata, spec and status."""
        return self.path / "gangjob.json"

    @property
    def removed(self) -> Path:
        """The object of a gang that was removed while its logs were kept: it tells their readers members and ranks."""
        return self.path / "removed.json"

    @property
    def lock(self) -> Path:
        """Lock file that a writer of the object holds."""
        return self.path / "gangjob.lock"

    @property
    def events(self) -> Path:
        """Events, one JSON object a line, oldest first."""
        return self.path / "events.jsonl"

    @property
    def pods(self) -> Path:
        """Folder with one folder for each pod."""
        return self.path / "pods"

    @property
    def before(self) -> Path:
        """What that folder was of the gang of this name before this one: for its logs."""
        return self.path / "before"

    @property
    def caches(self) -> Path:
        """Folder for what compilers of the workers keep."""
        return self.path / CACHES_FOLDER

    def pod(self, name: str) -> PodFolder:
        """Files of the pod of this name."""
        return PodFolder(self.pods / name)


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Files of one local cluster."""

    path: Path

    @property
    def lock(self) -> Path:
        """Lock file that the controller holds while it runs; contains its pid."""
        return self.path / "controller.lock"

    @property
    def run_lock(self) -> Path:
        """Lock file that ``gangctl run`` holds while it runs; contains its pid."""
        return self.path / "run.lock"

    @property
    def log(self) -> Path:
        """Log of the controller."""
        return self.path / "controller.log"

    @property
    def url(self) -> Path:
        """URL of the controller, for sidecars."""
        return self.path / "controller.url"

    @property
    def live(self) -> Path:
        """Address and token of the controller's live endpoint; only the owner can read it."""
        return self.path / "live.json"

    @property
    def program(self) -> Path:
        """The supervisor, copied into each new pod."""
        return self.path / SUPERVISOR_ARCHIVE

    @property
    def client(self) -> Path:
        """The folder of ``gangclient``, for the workers' PYTHONPATH."""
        return self.path / CLIENT_FOLDER

    @property
    def gangs(self) -> Path:
        """Folder with one folder for each gang."""
        return self.path / "gangs"

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


def runtime_directory() -> Path:
    """The folder for sockets: with a short path, owned by this user, closed to others.

    Raises:
        Terminal: the folder can't be created, or is open to other users.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "gangctl" if runtime else Path(tempfile.gettempdir()) / f"gangctl-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise Terminal(f"{path} can't be created for the sockets of local mode: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Terminal(f"{path} must be a directory that only its owner, user {os.getuid()}, can enter; remove it")
    return path


# At most one controller for each state directory: a second one would start every process twice.


@contextmanager
def only_controller(state: StateDirectory) -> Iterator[None]:
    """Hold the controller lock of a state directory; it is released at the end of the process at the latest.

    Raises:
        Terminal: another process holds it; the message names the process.
        Retryable: the lock can't be written.
    """
    try:
        descriptor = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(state.lock, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
            raise Terminal(f"process {holder} is already the controller of {state.path}") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
