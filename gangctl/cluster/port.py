"""The port of a cluster: gangs, pods and nodes for the controller to read, and the few writes that it makes.

The rule: a read makes no request; it returns what :meth:`Cluster.watch` keeps fresh. A write is visible to all later
reads of the same process. Every method may raise :class:`~gangctl.cluster.errors.ClusterError`; any other exception is
a bug.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.core.facts.printed import Printed, ReadOutput
from gangctl.core.facts.world import NodeState, Pod, Queue
from gangctl.core.lifecycle.plan import Event
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.pods import CreatePod, DeletePod


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The pod that a sidecar's connection belongs to: one incarnation of one member of one gang."""

    gang: str
    """UID of the GangJob."""
    member: str
    incarnation: int
    pod: str
    """UID of the pod."""
    namespace: str = field(default="", compare=False)
    """What it sends counts for the shares of this namespace."""

    @property
    def role(self) -> str:
        return self.member.rpartition("-")[0]


class RefusalReason(StrEnum):
    """Why a token is refused."""

    NO_TOKEN = "NoToken"  # noqa: S105 - no password
    MALFORMED = "Malformed"
    """It doesn't have the form of a service account token."""
    BAD_SIGNATURE = "BadSignature"
    UNKNOWN_KEY = "UnknownKey"
    """It was signed with a key that the cluster doesn't publish now."""
    EXPIRED = "Expired"
    NOT_YET_VALID = "NotYetValid"
    WRONG_ISSUER = "WrongIssuer"
    WRONG_AUDIENCE = "WrongAudience"
    """It was issued for another audience."""
    NOT_BOUND = "NotBound"
    """It isn't bound to a pod, so any process could have it."""
    UNKNOWN_POD = "UnknownPod"
    """Its pod doesn't exist, or isn't known yet."""
    POD_GONE = "PodGone"
    NOT_A_MEMBER = "NotAMember"
    """Its pod isn't a member of a gang."""
    CANNOT_VERIFY = "CannotVerify"
    """The API server can't be asked."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a token that isn't accepted."""

    reason: RefusalReason
    text: str
    """What is wrong with the token, for the log and for the sender. It must not contain the token."""
    retryable: bool = False
    """Whether the same token may be accepted a moment later."""


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """The identity of a gang or a pod, as its metadata has it."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class UnreadableGang:
    """A gang that is stored, and that this release can't read."""

    metadata: ObjectIdentity
    why: str
    """What is wrong with it, in a sentence."""


@dataclass(frozen=True, slots=True)
class PlainObject:
    """An object that is no GangJob, which an Event can be about."""

    metadata: ObjectIdentity
    """UID, namespace and name of the object."""
    kind: str = "Pod"
    api_version: str = "v1"


class Cluster(Protocol):
    """One cluster. A gang is identified by its UID: a second one of the same name is another gang."""

    def listening_since(self, uid: str) -> float:
        """Return since when the gang has been watched without a break, in seconds since the epoch.

        Another controller may have managed the gang before: its members can't have been heard here at that time.
        """

    def uids(self) -> Iterable[str]:
        """UIDs of all gangs that exist, readable or not."""

    def exists(self, uid: str) -> bool:
        """Say whether the gang is stored. One that this release can't read exists, though :meth:`gang` returns None."""

    def gang(self, uid: str) -> GangJob | None:
        """The stored gang; None if it is gone, or can't be read."""

    def unreadable(self, uid: str) -> UnreadableGang | None:
        """The stored gang that can't be read, and why; None if it can, or is gone."""

    def pods(self, uid: str) -> tuple[Pod, ...]:
        """All pods of the gang, including those that are terminating."""

    def lost_nodes(self) -> Mapping[str, float]:
        """Nodes that don't answer, and since when this leader's own fresh watches show them so."""

    def nodes(self) -> Mapping[str, NodeState]:
        """Return what nodes show beside that they answer: the same object as long as it is the same."""

    def unfavoured_nodes(self, uid: str) -> frozenset[str]:
        """Nodes that new pods of the gang rather avoid, since gangs have met faults there."""

    def pod_rejections(self, uid: str) -> tuple[str, ...] | None:
        """Return why the cluster rejects pods of this gang, in the cluster's words, one sentence for each role or pod.

        Empty = the cluster admits them; None = not known yet. A rejection is checked again from time to time, since
        quotas and policies change without the gang.
        """

    def queue(self, uid: str) -> Queue:
        """Return what the queue says that the gang names."""

    async def authenticate(self, token: str) -> MemberIdentity | Refusal:
        """The pod that this token belongs to, or why the token is refused."""

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Keep all reads fresh until cancelled; call ``changed`` with the UID of each gang that has changed.

        ``changed`` is also called once for every gang that exists at the start.
        """

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        """Store the status durably, if the stored object is still ``job``, and return the stored object.

        Raises:
            Conflict: the stored object is another one. :meth:`gang` already returns it.
            Retryable: the status could not be stored; the stored object is unchanged.
        """

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        """Create a member's pod; no effect if a pod of this name exists."""

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        """Delete a pod with its grace period; no effect if it is gone, is terminating, or has another UID."""

    async def printed(self, job: GangJob, query: ReadOutput) -> Printed:
        """Return what a worker printed last in an attempt; nothing if that isn't to be read, or is gone."""

    async def tell_queue(self, job: GangJob, tell: TellQueue) -> None:
        """Change the gang's Workload; no effect if that was done."""

    async def delete_gang(self, job: GangJob) -> None:
        """Delete the gang and with it its pods; no effect if it is gone or has another UID."""

    async def emit(self, gang: GangJob | UnreadableGang, event: Event) -> None:
        """Record an event for people."""
