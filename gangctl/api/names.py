"""Names of members and pods, labels and annotations. A name says everything that identity needs but the UIDs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LABEL_GANG: Final = "gangctl.io/gang"
"""Name of the GangJob."""
LABEL_UID: Final = "gangctl.io/uid"
"""UID of the GangJob: a second gang of the same name is another gang."""
LABEL_ROLE: Final = "gangctl.io/role"
LABEL_INDEX: Final = "gangctl.io/index"
LABEL_INCARNATION: Final = "gangctl.io/incarnation"

ANNOTATION_ROLES_HASH: Final = "gangctl.io/roles-hash"
"""On a pod: of which roles it was made (see :func:`gangctl.api.hashing.roles_hash`)."""
ANNOTATION_TRACEPARENT: Final = "gangctl.io/traceparent"
"""On a pod: the W3C trace context of the incident that it was created in."""

MAX_GANG_NAME: Final = 42
MAX_ROLE_NAME: Final = 15
MAX_MEMBERS: Final = 10_000
"""Members of a gang, spares included."""
MAX_POD_NAME: Final = 63
"""A pod's name is its host name, and a host name is a DNS label."""

_NUMBER: Final = "0|[1-9][0-9]{0,5}"
_ROLE: Final = f"[a-z][a-z0-9]{{0,{MAX_ROLE_NAME - 1}}}"
_MEMBER: Final = re.compile(rf"(?P<role>{_ROLE})-(?P<index>{_NUMBER})")
_POD: Final = re.compile(rf"(?P<gang>[a-z0-9].*)-(?P<role>{_ROLE})-(?P<index>{_NUMBER})-(?P<incarnation>{_NUMBER})")


def member_name(role: str, index: int) -> str:
    """``worker-5``: one place in the gang."""
    return f"{role}-{index}"


def parse_member_name(name: str) -> tuple[str, int]:
    """Role and index of a member's name.

    Raises:
        ValueError: it is no member's name.
    """
    match = _MEMBER.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not a member's name like worker-5")
    return match["role"], int(match["index"])


def pod_name(gang: str, member: str, incarnation: int) -> str:
    """``llama-worker-5-0``: the pod of a member's incarnation. Creating it twice is noticed by its name."""
    return f"{gang}-{member}-{incarnation}"


@dataclass(frozen=True, slots=True)
class PodName:
    """What a pod's name says."""

    gang: str
    role: str
    index: int
    incarnation: int


def parse_pod_name(name: str) -> PodName:
    """The parts of a pod's name.

    Raises:
        ValueError: it is no name of a gang's pod.
    """
    match = _POD.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a gang's pod like llama-worker-5-0")
    return PodName(match["gang"], match["role"], int(match["index"]), int(match["incarnation"]))
