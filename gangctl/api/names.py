"""Names of members and pods, labels, annotations, and the API's group, version and kind."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

# Group, version and kind of the API.


GROUP: Final = "gangctl.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "GangJob"
PLURAL: Final = "gangjobs"


LABEL_GANG: Final = "gangctl.io/gang"
"""Name of the GangJob."""
LABEL_UID: Final = "gangctl.io/uid"
"""UID of the GangJob: a new gang of the same name is another gang."""
LABEL_ROLE: Final = "gangctl.io/role"
LABEL_INDEX: Final = "gangctl.io/index"
LABEL_INCARNATION: Final = "gangctl.io/incarnation"

LABEL_CANARY: Final = "gangctl.io/canary"
"""On a GangJob that ``gangctl init --canary`` has made: gangs with the same value do the same work on other nodes."""
LABEL_DEVICE_GUARD: Final = "gangctl.io/device-guard"
"""On a pod that is no gang's: ``true`` if it is to be evicted when a device that it holds is unhealthy."""

LOCAL_NODE: Final = "localhost"
"""The node of every pod in local mode: there is no other one."""
SIDECAR: Final = "gangctl"
"""In a pod: name of the sidecar's container."""

ANNOTATION_APPLIED: Final = "gangctl.io/applied"
"""On a GangJob that was made from another object: a hash of what that asked for when it was last applied."""
ANNOTATION_ROLES_HASH: Final = "gangctl.io/roles-hash"
"""On a pod: hash of the roles that it was made from (see :func:`gangctl.api.stored.roles_hash`)."""
ANNOTATION_GROWS: Final = "gangctl.io/grows"
"""On a Workload that asks only for members by which its gang grows: the attempt that asked."""
ANNOTATION_WORKER: Final = "gangctl.io/worker-container"
"""On a pod: name of the worker's container. What happens to the user's other containers is no evidence."""
ANNOTATION_HUB_CA: Final = "gangctl.io/hub-ca"
"""On a pod: the authorities that its sidecar trusts, PEM. It changes when the hub's do."""
ANNOTATION_HUB_ADDRESS: Final = "gangctl.io/hub-address"
ANNOTATION_HUB_URL: Final = "gangctl.io/hub-url"
"""On a pod: the IP address of the hub's Service, so that its sidecar needs no DNS; empty = not known."""
ANNOTATION_TRACEPARENT: Final = "gangctl.io/traceparent"
"""On a pod: W3C trace context of the incident that it was created in."""
ANNOTATION_TRACE_ID: Final = "gangctl.io/trace-id"
"""On an Event: ID of the trace of the incident that it belongs to."""

MAX_GANG_NAME: Final = 42
MAX_ROLE_NAME: Final = 15
MAX_MEMBERS: Final = 10_000
"""Maximum number of members of a gang, including spares."""
MAX_INCARNATION: Final = 99_999
"""The incarnation that the limits of names allow for: one replacement every ten seconds would take eleven days."""
MAX_POD_NAME: Final = 63
"""A pod's name is its host name, which is a DNS label."""

_NUMBER: Final = "0|[1-9][0-9]{0,5}"
_ROLE: Final = f"[a-z][a-z0-9]{{0,{MAX_ROLE_NAME - 1}}}"
_NO_ROLE: Final = re.compile(r"[^a-z0-9]")
_MEMBER: Final = re.compile(rf"(?P<role>{_ROLE})-(?P<index>{_NUMBER})")
_POD: Final = re.compile(rf"(?P<gang>[a-z0-9].*)-(?P<role>{_ROLE})-(?P<index>{_NUMBER})-(?P<incarnation>{_NUMBER})")


@dataclass(frozen=True, slots=True)
class PodName:
    """The parts of a pod's name."""

    gang: str
    member: str
    incarnation: int

    def __str__(self) -> str:
        return pod_name(self.gang, self.member, self.incarnation)


def member_name(role: str, index: int) -> str:
    """``worker-3``: the member's name, unique in its gang."""
    return f"{role}-{index}"


def role_name(name: str, taken: Collection[str]) -> str:
    """A name for a role that another object calls ``name``: none of those that are taken."""
    base = _NO_ROLE.sub("", name.lower())[:MAX_ROLE_NAME] or "worker"
    base = base if base[0].isalpha() else f"r{base}"[:MAX_ROLE_NAME]
    made, number = base, 2
    while made in taken:
        made, number = f"{base[: MAX_ROLE_NAME - 2]}{number}", number + 1
    return made


def parse_member_name(name: str) -> tuple[str, int]:
    """Role and index of a member's name; a role's name has no dash, so this is unambiguous.

    Raises:
        ValueError: it is no name of a member.
    """
    match = _MEMBER.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r:.80} is no name of a member: expected ROLE-INDEX")
    return match["role"], int(match["index"])


def pod_name(gang: str, member: str, incarnation: int) -> str:
    """``llama-worker-3-0``: creation is idempotent, because the API server rejects a second pod of the same name.

    It has at most 63 characters up to incarnation 99,999: a GangJob whose names could exceed that is rejected.
    """
    return f"{gang}-{member}-{incarnation}"


def parse_pod_name(name: str) -> PodName:
    """Gang, member and incarnation of a pod's name; a gang's name may have dashes.

    Raises:
        ValueError: it isn't the name of a gang's pod.
    """
    match = _POD.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r:.80} is no name of a gang's pod: expected GANG-ROLE-INDEX-INCARNATION")
    return PodName(match["gang"], f"{match['role']}-{match['index']}", int(match["incarnation"]))


def longest_pod_name(gang: str, role: str, members: int) -> int:
    """Length of the longest pod name of a role with ``members`` members, at incarnation 99,999."""
    return len(pod_name(gang, member_name(role, max(members - 1, 0)), MAX_INCARNATION))


def pod_labels(gang: str, uid: str, member: str, incarnation: int) -> dict[str, str]:
    """The labels that gangctl sets on a pod. Together they are the identity of the pod."""
    role, index = parse_member_name(member)
    return {
        LABEL_GANG: gang,
        LABEL_UID: uid,
        LABEL_ROLE: role,
        LABEL_INDEX: str(index),
        LABEL_INCARNATION: str(incarnation),
    }


def gang_selector(uid: str) -> dict[str, str]:
    """Label selector of all pods of one gang."""
    return {LABEL_UID: uid}


# Linux signals. The table is fixed, so that a manifest is equally valid on a Mac and on a cluster. Source: signal(7),
# numbers of x86 and ARM.

_FROM_ONE: Final = """
SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM
SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR
SIGSYS
"""
SIGNALS: Final = MappingProxyType({name: number for number, name in enumerate(_FROM_ONE.split(), 1)})
"""Name to number. Real-time signals have no names: match them by exit code, 128+n."""

SIGNAL_NAMES: Final = MappingProxyType({number: name for name, number in SIGNALS.items()})


def signal_name(number: int) -> str:
    """Return SIGKILL for 9; SIG64 and the like where there is no name."""
    return SIGNAL_NAMES.get(number, f"SIG{number}")
