"""Sidecar injection: the container and the volumes that gangctl adds to a pod.

The rule: the native sidecar comes before the user's init containers, so it ends last and can report how the others
ended. It conforms to the *restricted* Pod Security Standard and mounts none of the user's volumes. Only it has the
token. As it starts, the supervisor copies itself and ``gangclient`` to a shared volume, in a postStart hook. No other
container starts before the hook is done, so that must take milliseconds. An init container of its own would cost each
pod more than a second.

Only the sidecar writes to the shared volume, so its size has a limit, and the worker's container mounts it read-only.
What that container writes itself is on a volume of its own. This one has no limit but those of the pod's ephemeral
storage: compilers keep their caches there, and to exceed a limit would end the pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from gangctl.api.names import ANNOTATION_HUB_ADDRESS, ANNOTATION_HUB_CA, ANNOTATION_HUB_URL, SIDECAR
from gangctl.cluster.kube.pod.reserved import (
    DIRECTORY,
    HUB_DIRECTORY,
    HUB_VOLUME,
    SHARED_VOLUME,
    STATE_DIRECTORY,
    STATE_VOLUME,
)
from gangctl.cluster.kube.settings import KubeSettings

INSTALLER: Final = "/opt/gangctl/pod/supervisor"
"""The supervisor in the sidecar's image (containers/sidecar.Containerfile), in the folder that it installs."""
TOKEN_SECONDS: Final = 3600
"""Validity of a token; the kubelet renews it after four fifths of that time."""
USER: Final = 65532
"""The user of the sidecar's image."""

TERMINATION_LOG: Final = "/dev/termination-log"
"""Where Kubernetes reads a container's termination message. The kubelet mounts it, and every user may write it."""

SHARED_LIMIT: Final = "64Mi"
"""Of what only the sidecar writes: about 10 MB, most of it the supervisor."""

WORKER_MOUNTS: Final[tuple[Mapping[str, Any], ...]] = (
    {"name": SHARED_VOLUME, "mountPath": DIRECTORY, "readOnly": True},
    {"name": STATE_VOLUME, "mountPath": STATE_DIRECTORY},
)
"""In the worker's container. A socket on a read-only mount can be connected to."""


def sidecar_container(
    settings: KubeSettings, resources: Mapping[str, Any], pod_security: Mapping[str, Any]
) -> dict[str, Any]:
    """The native sidecar. ``pod_security``: the security context of the template's pod."""
    environment = {
        "GANG_DIR": DIRECTORY,
        "GANG_CONTROLLER_FILE": f"{HUB_DIRECTORY}/url",
        "GANG_TOKEN_FILE": f"{HUB_DIRECTORY}/token",
        "GANG_ADDRESS_FILE": f"{HUB_DIRECTORY}/address",
        "GANG_CA_FILE": f"{HUB_DIRECTORY}/ca.crt",
        "GANG_TERMINATION_LOG": TERMINATION_LOG,
        # The sidecar trusts that file only. Without this, aiohttp would load the system's certificates too: 2 MB.
        "SSL_CERT_FILE": "/dev/null",
    }
    return {
        "name": SIDECAR,
        "image": settings.sidecar_image,
        "imagePullPolicy": settings.sidecar_image_pull_policy,
        **({"resources": resources} if resources else {}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "runAsNonRoot": True,
            # A user that the template sets for all containers is this one's too. Otherwise it is the image's, or the
            # one that the cluster assigns (OpenShift refuses any other). Root would be refused by the line above.
            **({"runAsUser": USER, "runAsGroup": USER} if pod_security.get("runAsUser") == 0 else {}),
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            **deepcopy(dict(settings.sidecar_security_context)),
        },
        "restartPolicy": "Always",
        "command": ["python3", "-m", "gangsidecar.agent"],
        "lifecycle": {"postStart": {"exec": {"command": [INSTALLER, "install", DIRECTORY]}}},
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [
            {"name": SHARED_VOLUME, "mountPath": DIRECTORY},
            {"name": HUB_VOLUME, "mountPath": HUB_DIRECTORY, "readOnly": True},
        ],
    }


def sidecar_volumes(settings: KubeSettings) -> list[dict[str, Any]]:
    """The volumes of gangctl. The token is bound to the pod, and has no rights on the API server.

    The kubelet writes the files of the hub again when the token is renewed or an annotation changes.
    """
    token = {"audience": settings.audience, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    files = {"ca.crt": ANNOTATION_HUB_CA, "url": ANNOTATION_HUB_URL, "address": ANNOTATION_HUB_ADDRESS}
    items = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}} for path, name in files.items()
    ]
    return [
        {"name": SHARED_VOLUME, "emptyDir": {"sizeLimit": SHARED_LIMIT}},
        {"name": STATE_VOLUME, "emptyDir": {}},
        {
            "name": HUB_VOLUME,
            "projected": {"sources": [{"serviceAccountToken": token}, {"downwardAPI": {"items": items}}]},
        },
    ]


def pull_secrets(settings: KubeSettings, written: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The template's pull secrets, and those for the sidecar's image."""
    names = {one.get("name") for one in written}
    return [*written, *({"name": name} for name in settings.sidecar_pull_secrets if name not in names)]
