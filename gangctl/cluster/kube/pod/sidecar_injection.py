"""What gangctl adds to a pod: two containers of the sidecar's image and two volumes.

The init container puts the supervisor and the framework's client onto a volume; the native sidecar comes right after
it, before the user's own init containers, so that it is the last one to end and hears how the others did. Both pass
Pod Security's *restricted* level and reach nothing of the user's. The token is mounted in the sidecar alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.settings import KubeSettings

DIRECTORY: Final = "/run/gang"
"""What the supervisor, the worker and the sidecar share: sockets, the supervisor and its state file, gangclient."""
FRAMEWORK_SOCKET: Final = "gang.sock"
TOKEN_DIRECTORY: Final = "/run/gang-token"  # noqa: S105 - a place, not a token
TOKEN_SECONDS: Final = 3600
"""For how long a token is valid; the kubelet renews it after four fifths of that."""
USER: Final = 65532

INSTALLER: Final = "gangctl-install"
SIDECAR: Final = "gangctl"
SHARED_VOLUME: Final = "gangctl"
TOKEN_VOLUME: Final = "gangctl-token"  # noqa: S105 - a name, not a token

SHARED_MOUNT: Final = {"name": SHARED_VOLUME, "mountPath": DIRECTORY}
_TOKEN_MOUNT: Final = {"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True}


def containers(settings: KubeSettings, ca: str) -> list[dict[str, Any]]:
    """The two init containers, in their order. ``ca``: PEM text of the certificates to trust."""
    environment = {
        "GANG_DIR": DIRECTORY,
        "GANG_CONTROLLER": settings.url,
        "GANG_TOKEN_FILE": f"{TOKEN_DIRECTORY}/token",
        "GANG_CA": ca,
        "GANG_SERVER_NAME": settings.server_name,
        # Only our own certificates are trusted: aiohttp would load the system's as well, two megabytes for nothing.
        "SSL_CERT_FILE": "/dev/null",
    }
    installer = {
        **_container(INSTALLER, settings),
        "command": ["python3", "-m", "gangsidecar.install", DIRECTORY],
        "volumeMounts": [dict(SHARED_MOUNT)],
    }
    sidecar = {
        **_container(SIDECAR, settings),
        "restartPolicy": "Always",
        "command": ["python3", "-m", "gangsidecar.agent"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [dict(SHARED_MOUNT), dict(_TOKEN_MOUNT)],
    }
    return [installer, sidecar]


def volumes(settings: KubeSettings) -> list[dict[str, Any]]:
    """The shared one and the token, which is bound to the pod and says nothing to the API server."""
    token = {"audience": settings.audience, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [
        {"name": SHARED_VOLUME, "emptyDir": {}},
        {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]


def refuse_reserved_names(entries: Sequence[dict[str, Any]], path: str) -> None:
    """Refuse a container or a volume of the user's that has the name of one of ours.

    Raises:
        Terminal: there is one; the text names the field.
    """
    for at, entry in enumerate(entries):
        if entry.get("name") in {INSTALLER, SIDECAR, SHARED_VOLUME, TOKEN_VOLUME}:
            raise Terminal(f"{path}[{at}].name: {entry['name']} is what gangctl adds to the pod; take another name")


def _container(name: str, settings: KubeSettings) -> dict[str, Any]:
    return {
        "name": name,
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
        },
    }
