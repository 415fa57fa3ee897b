"""The worker's container: the user's own, with the supervisor as its entry point.

The rule: everything stays as the user wrote it, but

* the command runs below the supervisor. Every ``$`` of command and args is doubled and the kubelet makes one of two,
  so the supervisor gets exactly what the user wrote. It expands ``$(VAR)`` and ``$$`` by the kubelet's own rules, from
  the environment of the attempt; ``$$(VAR)`` becomes the literal ``$(VAR)``. Values of ``env`` stay the kubelet's;
* the variables of :data:`OURS` are gangctl's: one that the user gave the same name loses. They come first, so that
  the user's values may refer to them;
* ``restartPolicy`` and ``restartPolicyRules`` of the container are gangctl's.
"""

from __future__ import annotations

import posixpath
from typing import Any, Final

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod.fields import as_list, as_mappings
from gangctl.cluster.kube.pod.sidecar_injection import DIRECTORY, FRAMEWORK_SOCKET, SHARED_MOUNT
from gangctl.core.policy.pods import CreatePod

SUPERVISOR: Final = ("python3", "-IS", f"{DIRECTORY}/supervisor.pyz", "run", "--")
"""Isolated, without site packages: as the archive would start itself again otherwise."""
RESERVED_VARIABLES: Final = frozenset(
    {
        "GANG_UID",
        "GANG_MEMBER",
        "GANG_INCARNATION",
        "GANG_POD_UID",
        "GANG_POD_IP",
        "GANG_SUPERVISOR_SOCKET",
        "GANG_STATE",
        "GANG_CLIENT_DIR",
        "GANG_SOCKET",
    }
)
RESTART_ALL: Final = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
"""KEP-5532: whatever ended but a supervisor that is done starts the pod's containers anew, without a back-off."""


def escape_dollars(text: str) -> str:
    """What the kubelet turns into ``text``, whatever is in it."""
    return text.replace("$", "$$")


def supervised(
    container: dict[str, Any], path: str, *, uid: str, create: CreatePod, restart_all: bool
) -> dict[str, Any]:
    """The worker's container below the supervisor.

    Args:
        container: The user's, as JSON values.
        path: Of it in the job, for errors.
        uid: UID of the gang.
        create: Whose pod it is.
        restart_all: Whether the node restarts all of the pod's containers for it.

    Raises:
        Terminal: it can't be wrapped; the text names the field.
    """
    made = {key: value for key, value in container.items() if key not in {"restartPolicy", "restartPolicyRules"}}
    made["command"] = [*SUPERVISOR, *map(escape_dollars, container["command"])]
    if container.get("args") is not None:
        made["args"] = _arguments(container["args"], f"{path}.args")
    made["env"] = [*_environment(uid, create), *_kept(container.get("env"), f"{path}.env")]
    made["volumeMounts"] = [*_mounts(container.get("volumeMounts"), f"{path}.volumeMounts"), dict(SHARED_MOUNT)]
    if restart_all:
        made |= {"restartPolicy": "Never", "restartPolicyRules": [dict(RESTART_ALL)]}
    return made


def _arguments(written: Any, path: str) -> list[str]:
    words = as_list(written, path)
    for at, word in enumerate(words):
        if not isinstance(word, str):
            raise Terminal(f"{path}[{at}]: {word!r:.80} instead of a string; quote it")
    return [escape_dollars(word) for word in words]


def _environment(uid: str, create: CreatePod) -> list[dict[str, Any]]:
    plain = {"GANG_UID": uid, "GANG_MEMBER": create.member, "GANG_INCARNATION": str(create.incarnation)}
    downward = {"GANG_POD_UID": "metadata.uid", "GANG_POD_IP": "status.podIP"}
    places = {
        "GANG_SUPERVISOR_SOCKET": f"{DIRECTORY}/supervisor.sock",
        "GANG_STATE": f"{DIRECTORY}/state",
        "GANG_CLIENT_DIR": f"{DIRECTORY}/client",
        "GANG_SOCKET": f"{DIRECTORY}/{FRAMEWORK_SOCKET}",
    }
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}} for name, field in downward.items()),
        *({"name": name, "value": value} for name, value in places.items()),
    ]


def _kept(written: Any, path: str) -> list[dict[str, Any]]:
    return [entry for entry in as_mappings(written, path) if entry.get("name") not in RESERVED_VARIABLES]


def _mounts(written: Any, path: str) -> list[dict[str, Any]]:
    mounts = as_mappings(written, path)
    for at, mount in enumerate(mounts):
        where = mount.get("mountPath")
        if isinstance(where, str) and posixpath.normpath(where) == DIRECTORY:
            raise Terminal(
                f"{path}[{at}].mountPath: {where} is where gangctl puts its supervisor; mount the volume elsewhere"
            )
    return mounts
