"""Where everything of local mode lies, below one state directory (``.gangctl`` in the working directory by default).

    run.lock  controller.lock  controller.log  controller.url  live.json  supervisor.pyz  client/gangclient/
    gangs/NAME/      gangjob.json (spec and status)  events.jsonl
    gangs/NAME/pods/POD/   pod.json  token  supervisor.pyz  supervisor.json  sidecar.log  worker.log

Sockets lie elsewhere: their whole path must fit in 107 bytes.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.cluster.errors import Terminal
from gangsidecar.wire import CLIENT_FOLDER, SUPERVISOR_PROGRAM

DEFAULT_STATE_DIRECTORY: Final = Path(".gangctl")
_GANG_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class PodFolder:
    """Files of one pod. Logs are appended to and never rotated."""

    path: Path

    @property
    def record(self) -> Path:
        """The pod itself."""
        return self.path / "pod.json"

    @property
    def token(self) -> Path:
        """What its sidecar shows to the controller."""
        return self.path / "token"

    @property
    def program(self) -> Path:
        """Its own copy of the supervisor: another release of gangctl doesn't change a pod that is there."""
        return self.path / SUPERVISOR_PROGRAM

    @property
    def state_file(self) -> Path:
        """What the supervisor keeps for its next session."""
        return self.path / "supervisor.json"

    @property
    def sidecar_log(self) -> Path:
        """Output of the sidecar."""
        return self.path / "sidecar.log"

    @property
    def worker_log(self) -> Path:
        """Output of the worker and, as in a container, of its supervisor."""
        return self.path / "worker.log"


@dataclass(frozen=True, slots=True)
class GangFolder:
    """Files of one gang."""

    path: Path

    @property
    def job(self) -> Path:
        """The whole object: metadata, spec and status."""
        return self.path / "gangjob.json"

    @property
    def lock(self) -> Path:
        """Held by who writes the object."""
        return self.path / "gangjob.lock"

    @property
    def events(self) -> Path:
        """Events, one JSON object a line, oldest first."""
        return self.path / "events.jsonl"

    @property
    def pods(self) -> Path:
        """One folder a pod."""
        return self.path / "pods"

    def pod(self, name: str) -> PodFolder:
        """Files of the pod of this name."""
        return PodFolder(self.pods / name)


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Files of one local cluster."""

    path: Path

    @property
    def lock(self) -> Path:
        """Held by the controller for as long as it lives; contains its pid."""
        return self.path / "controller.lock"

    @property
    def run_lock(self) -> Path:
        """Held by ``gangctl run`` for as long as it lives; contains its pid."""
        return self.path / "run.lock"

    @property
    def log(self) -> Path:
        """What the controller says, appended to and never rotated."""
        return self.path / "controller.log"

    @property
    def url(self) -> Path:
        """Where sidecars find the controller."""
        return self.path / "controller.url"

    @property
    def live(self) -> Path:
        """Where the controller's live endpoint listens, with the token for it; only the owner can read it."""
        return self.path / "live.json"

    @property
    def program(self) -> Path:
        """The supervisor that new pods get a copy of."""
        return self.path / SUPERVISOR_PROGRAM

    @property
    def client(self) -> Path:
        """The folder of ``gangclient``, for the workers' PYTHONPATH."""
        return self.path / CLIENT_FOLDER

    @property
    def gangs(self) -> Path:
        """One folder a gang."""
        return self.path / "gangs"

    def gang(self, name: str) -> GangFolder:
        """Files of the gang of this name.

        Raises:
            Terminal: it is no name of a gang (so no path can be smuggled in by it).
        """
        if not _GANG_NAME.fullmatch(name):
            raise Terminal(
                f"{name!r:.80} is not a valid name of a gang: use at most 42 lower-case letters, digits and dashes"
            )
        return GangFolder(self.gangs / name)


def runtime_directory() -> Path:
    """The folder for sockets: short, ours, and closed to others.

    Raises:
        Terminal: somebody else owns it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "gangctl" if runtime else Path(tempfile.gettempdir()) / f"gangctl-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise Terminal(f"{path}: sockets of local mode can't lie there: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Terminal(f"{path} must be a directory that only its owner, user {os.getuid()}, can enter; remove it")
    return path
