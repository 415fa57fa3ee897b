"""What the controller needs of a world: jobs, pods and nodes to look at, and a few things that it may do to them.

Reading is free: it looks at what :meth:`Cluster.watch` keeps fresh. Whatever is written is seen by later reads of the
same process. Everything may raise :class:`~gangctl.cluster.errors.ClusterError`, and nothing else that is foreseen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import CreatePod, DeletePod, Event


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Whose supervisor speaks on a connection: one pod of one member of one gang."""

    gang: str
    """UID of the GangJob."""
    member: str
    incarnation: int
    pod: str
    """UID of the pod."""


class RefusalReason(StrEnum):
    """Why a token doesn't say whose supervisor speaks."""

    NO_TOKEN = "NoToken"  # noqa: S105 - no password
    MALFORMED = "Malformed"
    """It is none of the cluster's tokens, by its form."""
    BAD_SIGNATURE = "BadSignature"
    UNKNOWN_KEY = "UnknownKey"
    """It was signed with a key that isn't the cluster's, or not yet, or not any more."""
    EXPIRED = "Expired"
    NOT_YET_VALID = "NotYetValid"
    WRONG_ISSUER = "WrongIssuer"
    WRONG_AUDIENCE = "WrongAudience"
    """It is meant for somebody else."""
    NOT_BOUND = "NotBound"
    """It isn't bound to a pod: anybody could have it."""
    UNKNOWN_POD = "UnknownPod"
    """Its pod isn't there, or not yet."""
    POD_GONE = "PodGone"
    NOT_A_MEMBER = "NotAMember"
    """Its pod isn't what a gang's pod is."""
    CANNOT_VERIFY = "CannotVerify"
    """Nobody who could tell is there."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A token that isn't taken."""

    reason: RefusalReason
    text: str
    """What is wrong with it, for the log and for who sent it. The token isn't in it."""
    again: bool = False
    """Whether the same token may well be taken in a moment."""


class Cluster(Protocol):
    """One world. A gang is named by its UID: a second one of the same name is another gang."""

    @property
    def listening_since(self) -> float:
        """Since when it has watched without a break, in seconds since the epoch."""

    def gang(self, uid: str) -> GangJob | None:
        """The gang as it is stored; None if it is gone."""

    def pods(self, uid: str) -> tuple[Pod, ...]:
        """All pods of the gang, those that are ending among them."""

    def lost_nodes(self) -> frozenset[str]:
        """Names of nodes that don't answer."""

    def refusals(self, uid: str) -> tuple[str, ...] | None:
        """Why the world takes no pods of this gang, in its own words, a sentence for each role or pod that was refused.

        Empty = it takes them; None = that isn't known yet. What was refused is asked again from time to time, since
        quotas and policies change without the gang.
        """

    async def authenticate(self, token: str) -> MemberIdentity | Refusal:
        """Whose token this is, or why it is nobody's."""

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Keep what is read fresh until cancelled; ``changed`` is called with the UID of a gang that looks different.

        It is called once for every gang that is there at the start, too.
        """

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        """Store the status durably, if the stored object is still ``job``; the object as it is stored then.

        Raises:
            Conflict: it isn't any more. :meth:`gang` shows the fresh one by now.
            Retryable: it could not be stored; the last good one is untouched.
        """

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        """Create a member's pod; no effect if the pod of this name is there."""

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        """Begin to end a pod, within its grace; no effect if it is gone, is ending, or has another UID."""

    async def delete_gang(self, job: GangJob) -> None:
        """Begin to delete the gang itself, and with it its pods; no effect if it is gone or has another UID."""

    async def emit(self, job: GangJob, event: Event) -> None:
        """Tell people."""
