"""A local pod as it is stored: what it was made of, which processes it has, how far its life has come."""

from __future__ import annotations

from typing import TypedDict, Unpack

from pydantic import ValidationError

from gangctl.api.model import Model
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.atomic_files import read, write
from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.process import Process
from gangctl.core.facts.world import Pod

NODE = "localhost"
ADDRESS = "127.0.0.1"
_ADVICE = "its gang is left alone until the file is restored, or its processes are ended and the file is removed"


class PodRecord(Model):
    """Everything that another controller process needs to go on with the pod."""

    name: str
    uid: str
    gang: str
    """UID of the GangJob."""
    member: str
    incarnation: int
    created: float
    """Seconds since the epoch, as all times here."""
    token: str
    """What its sidecar shows to the controller."""
    sockets: str
    """The folder of its unix sockets."""
    command: tuple[str, ...]
    environment: dict[str, str]
    """What its template adds to the controller's own environment."""
    directory: str
    """The working directory of the worker."""
    grace_seconds: int = 30
    """From SIGTERM to SIGKILL when the pod is deleted."""
    sidecar: Process | None = None
    supervisor: Process | None = None
    started: float | None = None
    """When its supervisor was last started; absent while there is none."""
    ended: float | None = None
    """When its supervisor ended last; absent if it never did."""
    restarts: int = 0
    """How often its supervisor was started again."""
    deleting: bool = False
    terminated: bool = False
    """Nothing of it runs, and nothing will."""
    reason: str = ""


class RecordChanges(TypedDict, total=False):
    """Fields that change during a pod's life."""

    grace_seconds: int
    sidecar: Process | None
    supervisor: Process | None
    started: float | None
    ended: float | None
    restarts: int
    deleting: bool
    terminated: bool
    reason: str


def changed(record: PodRecord, **changes: Unpack[RecordChanges]) -> PodRecord:
    """Return a copy of the record with these fields changed."""
    return record.model_copy(update=dict(changes))


def load(folder: PodFolder) -> PodRecord | None:
    """The stored pod; None if there is none in this folder.

    Raises:
        Terminal: the file can't be read, or isn't one.
    """
    try:
        content, _ = read(folder.record)
        return PodRecord.model_validate_json(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Terminal(f"{folder.record} can't be read: {error.strerror}; {_ADVICE}") from error
    except ValidationError as error:
        raise Terminal(f"{folder.record} isn't a pod: {error.errors(include_url=False)[0]['msg']}; {_ADVICE}") from None


def load_all(folder: GangFolder) -> tuple[PodRecord, ...]:
    """Every stored pod of a gang, by name.

    Raises:
        Terminal: one of them can't be read.
    """
    paths = sorted(folder.pods.iterdir()) if folder.pods.is_dir() else []
    return tuple(record for path in paths if (record := load(PodFolder(path))) is not None)


def save(folder: PodFolder, record: PodRecord, *, durable: bool) -> None:
    """Store the pod.

    Raises:
        Retryable: it can't be written.
    """
    write(folder.record, record.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode(), durable=durable)


def projection(record: PodRecord) -> Pod:
    """The pod as decide() sees it. A laptop schedules at once."""
    return Pod(
        name=record.name,
        uid=record.uid,
        member=record.member,
        incarnation=record.incarnation,
        node=NODE,
        created_at=record.created,
        scheduled_at=record.created,
        started_at=record.started,
        ended_at=record.ended,
        restarts=record.restarts,
        deleting=record.deleting,
        terminated=record.terminated,
        reason=record.reason,
    )
