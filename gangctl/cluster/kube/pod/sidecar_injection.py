"""Sidecar injection: the container and the two volumes that gangctl adds to a pod.

The rule: the native sidecar comes before the user's init containers, so it ends last and can report how the others
ended. It conforms to the *restricted* Pod Security Standard and mounts none of the user's volumes. Only it has the
token. As it starts, it copies the supervisor and ``gangclient`` to a shared volume, in a postStart hook: no other
container starts before the hook is done. An init container of its own would cost each pod more than a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from gangctl.api.names import SIDECAR
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.settings import KubeSettings

DIRECTORY: Final = "/run/gang"
"""The shared volume of supervisor, worker and sidecar: sockets, the supervisor, its state file, gangclient."""
TOKEN_DIRECTORY: Final = "/run/gang-token"  # noqa: S105 - a path, not a token
EXECUTABLE: Final = "/opt/gangctl/supervisor"
"""The supervisor in the sidecar's image (containers/sidecar.Containerfile)."""
TOKEN_SECONDS: Final = 3600
"""Validity of a token; the kubelet renews it after four fifths of that time."""
USER: Final = 65532

SHARED_VOLUME: Final = "gangctl"
TOKEN_VOLUME: Final = "gangctl-token"  # noqa: S105 - a name, not a token

SHARED_MOUNT: Final = {"name": SHARED_VOLUME, "mountPath": DIRECTORY}
_TOKEN_MOUNT: Final = {"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True}


def sidecar_container(settings: KubeSettings, ca: str) -> dict[str, Any]:
    """The native sidecar. ``ca``: PEM text of the authorities to trust."""
    environment = {
        "GANG_DIR": DIRECTORY,
        "GANG_CONTROLLER": settings.url,
        "GANG_TOKEN_FILE": f"{TOKEN_DIRECTORY}/token",
        "GANG_CA": ca,
        "GANG_SERVER_NAME": settings.server_name,
        # The sidecar trusts ``ca`` only. Without this, aiohttp would load the system's certificates too: 2 MB.
        "SSL_CERT_FILE": "/dev/null",
    }
    return {
        "name": SIDECAR,
        "image": settings.sidecar_image,
        "imagePullPolicy": settings.sidecar_image_pull_policy,
        **({"resources": deepcopy(dict(settings.sidecar_resources))} if settings.sidecar_resources else {}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            **deepcopy(dict(settings.sidecar_security_context)),
        },
        "restartPolicy": "Always",
        "command": ["python3", "-m", "gangsidecar.agent"],
        "lifecycle": {
            "postStart": {"exec": {"command": ["python3", "-m", "gangsidecar.install", DIRECTORY, EXECUTABLE]}}
        },
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [dict(SHARED_MOUNT), dict(_TOKEN_MOUNT)],
    }


def sidecar_volumes(settings: KubeSettings) -> list[dict[str, Any]]:
    """The shared volume, and the token: bound to the pod, and without rights on the API server."""
    token = {"audience": settings.audience, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [
        {"name": SHARED_VOLUME, "emptyDir": {}},
        {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]


def pull_secrets(settings: KubeSettings, written: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The template's pull secrets, and those for the sidecar's image."""
    names = {one.get("name") for one in written}
    return [*written, *({"name": name} for name in settings.sidecar_pull_secrets if name not in names)]


def refuse_reserved_names(entries: Sequence[dict[str, Any]], path: str) -> None:
    """Refuse a container or volume of the template with a name that gangctl uses.

    Raises:
        Terminal: there is one; the text names the field.
    """
    for at, entry in enumerate(entries):
        if entry.get("name") in {SIDECAR, SHARED_VOLUME, TOKEN_VOLUME}:
            raise Terminal(
                f"{path}[{at}].name: {entry['name']} is a name that gangctl uses in each pod; choose another name"
            )
