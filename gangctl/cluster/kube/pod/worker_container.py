"""The worker's container: the user's container, with the supervisor as its entry point.

The rule: everything stays as the user wrote it, except:

* The supervisor runs the command. Each ``$`` in command and args is doubled, and the kubelet turns two into one, so the
  supervisor gets exactly what the user wrote. It expands ``$(VAR)`` and ``$$`` by the kubelet's rules, from the
  environment of the attempt: ``$$(VAR)`` becomes the literal ``$(VAR)``. The kubelet expands values of ``env``.
* gangctl sets the variables of :data:`RESERVED_VARIABLES` and drops a user's variable of the same name. They come
  first, so that the user's values may refer to them.
* gangctl sets ``restartPolicy`` and ``restartPolicyRules`` of the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod.fields import as_list, as_mappings
from gangctl.cluster.kube.pod.reserved import DIRECTORY, STATE_DIRECTORY
from gangctl.cluster.kube.pod.sidecar_injection import WORKER_MOUNTS
from gangctl.core.policy.pods import CreatePod
from gangsidecar.wire import (
    CACHES_VARIABLE,
    CLIENT_FOLDER,
    FRAMEWORK_SOCKET,
    PRELOAD_VARIABLE,
    SUPERVISOR_PROGRAM,
    SUPERVISOR_SOCKET,
)

SUPERVISOR: Final = (f"{DIRECTORY}/{SUPERVISOR_PROGRAM}", "run", "--")
"""A static executable: it needs nothing of the image."""
RESERVED_VARIABLES: Final = frozenset(
    {
        "GANG_UID",
        "GANG_MEMBER",
        "GANG_INCARNATION",
        "GANG_POD_UID",
        "GANG_POD_IP",
        "GANG_NODE",
        "GANG_SUPERVISOR_SOCKET",
        "GANG_STATE",
        "GANG_TERMINATION_LOG",
        "GANG_CLIENT_DIR",
        "GANG_SOCKET",
        PRELOAD_VARIABLE,
        CACHES_VARIABLE,
    }
)
TERMINATION_LOG: Final = "/dev/termination-log"
"""Where the kubelet finds the termination message of a container that names no other path."""
RESTART_ALL: Final = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
"""KEP-5532: unless the supervisor ends with 0, the kubelet restarts all containers of the pod, without a back-off."""


def escape_dollars(text: str) -> str:
    """A string that the kubelet expands to exactly ``text``."""
    return text.replace("$", "$$")


def supervised_container(
    container: dict[str, Any], path: str, *, uid: str, create: CreatePod, told: Mapping[str, str], restart_all: bool
) -> dict[str, Any]:
    """The worker's container with the supervisor as its entry point.

    Args:
        container: The user's container, as JSON values.
        path: Path of it in the job, for errors.
        uid: UID of the gang.
        create: The pod's member and incarnation.
        told: Variables of this role for the supervisor, which does not pass them on.
        restart_all: Whether the nodes support RestartAllContainers.

    Raises:
        Terminal: a field can't be used; the text names it.
    """
    made = {key: value for key, value in container.items() if key not in {"restartPolicy", "restartPolicyRules"}}
    made["command"] = [*SUPERVISOR, *map(escape_dollars, container["command"])]
    if container.get("args") is not None:
        made["args"] = _arguments(container["args"], f"{path}.args")
    termination_log = str(container.get("terminationMessagePath") or TERMINATION_LOG)
    plain = {
        "GANG_UID": uid,
        "GANG_MEMBER": create.member,
        "GANG_INCARNATION": str(create.incarnation),
        **told,
    }
    made["env"] = [*_environment(plain, termination_log), *_user_environment(container.get("env"), f"{path}.env")]
    made["volumeMounts"] = [
        *as_mappings(container.get("volumeMounts"), f"{path}.volumeMounts"),
        *map(dict, WORKER_MOUNTS),
    ]
    if restart_all:
        made |= {"restartPolicy": "Never", "restartPolicyRules": [dict(RESTART_ALL)]}
    return made


def _arguments(written: Any, path: str) -> list[str]:
    words = as_list(written, path)
    for at, word in enumerate(words):
        if not isinstance(word, str):
            raise Terminal(f"{path}[{at}]: {word!r:.80} instead of a string; quote it")
    return [escape_dollars(word) for word in words]


def _environment(plain: dict[str, str], termination_log: str) -> list[dict[str, Any]]:
    downward = {"GANG_POD_UID": "metadata.uid", "GANG_POD_IP": "status.podIP", "GANG_NODE": "spec.nodeName"}
    paths = {
        "GANG_SUPERVISOR_SOCKET": f"{DIRECTORY}/{SUPERVISOR_SOCKET}",
        "GANG_STATE": f"{STATE_DIRECTORY}/state",
        "GANG_TERMINATION_LOG": termination_log,
        "GANG_CLIENT_DIR": f"{DIRECTORY}/{CLIENT_FOLDER}",
        "GANG_SOCKET": f"{DIRECTORY}/{FRAMEWORK_SOCKET}",
    }
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}} for name, field in downward.items()),
        *({"name": name, "value": value} for name, value in paths.items()),
    ]


def _user_environment(written: Any, path: str) -> list[dict[str, Any]]:
    return [entry for entry in as_mappings(written, path) if entry.get("name") not in RESERVED_VARIABLES]
