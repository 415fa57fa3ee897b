"""The additions to a pod: the sidecar with its volumes, and the supervisor as the worker's entry point.

The rule of the template: null means absent, as on the API server. A value of the wrong type is an error that names the
field. All other checks are left to the API server, which makes them in the dry run. A template that uses what belongs
to gangctl is refused, with the path of the field. No container of the user, the worker's included, may mount a volume
of gangctl by name: the token is the sidecar's alone, and programs are not to be written. In the worker's container
nothing may lie on or below a folder of gangctl. A mount *above* one is harmless, since container runtimes mount in the
order of depth.

The rule of the sidecar: it comes before the user's init containers, so it ends last and can report how the others
ended. It conforms to the *restricted* Pod Security Standard and mounts none of the user's volumes. Only it has the
token. As it starts, the supervisor copies itself and ``gangclient`` to a shared volume, in a postStart hook. No other
container starts before the hook is done, so that must take milliseconds. An init container of its own would cost each
pod more than a second. Only the sidecar writes to the shared volume, so its size has a limit, and the worker's
container mounts it read-only. What that container writes itself is on a volume of its own, which has no limit but those
of the pod's ephemeral storage: compilers keep their caches there, and to exceed a limit would end the pod.

A Guaranteed pod stays Guaranteed (kubelet, ``pkg/apis/core/v1/helper/qos``): each of its containers, init containers
too, has limits for cpu and memory, and requests that equal them or are absent. If all containers of a template are like
that, so is the sidecar; otherwise it has the resources that are configured. CPUs stay pinned: the kubelet's static CPU
manager gives exclusive CPUs to a container that requests a whole number (``policy_static.go``, ``guaranteedCPUs``), and
the sidecar requests a part of a CPU. A pod with resources of its own (``spec.resources``) has the class of those.

The rule of the worker's container: everything stays as the user wrote it, except:

* The supervisor runs the command. Each ``$`` in command and args is doubled, and the kubelet turns two into one, so the
  supervisor gets exactly what the user wrote. It expands ``$(VAR)`` and ``$$`` by the kubelet's rules, from the
  environment of the attempt: ``$$(VAR)`` becomes the literal ``$(VAR)``. The kubelet expands values of ``env``.
* gangctl sets the variables of :data:`RESERVED_VARIABLES` and drops a user's variable of the same name. They come
  first, so that the user's values may refer to them.
* gangctl sets ``restartPolicy`` and ``restartPolicyRules`` of the container.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from gangctl.api.names import ANNOTATION_HUB_ADDRESS, ANNOTATION_HUB_CA, ANNOTATION_HUB_URL, SIDECAR
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.core.facts.node_affinity import quantity
from gangctl.core.policy.pods import CreatePod
from gangsidecar.wire import (
    CACHES_VARIABLE,
    CLIENT_FOLDER,
    FRAMEWORK_SOCKET,
    PRELOAD_VARIABLE,
    STOP_SIGNALS,
    SUPERVISOR_PROGRAM,
    SUPERVISOR_SOCKET,
)


def as_mapping(value: Any, path: str) -> dict[str, Any]:
    """A shallow copy of a mapping; empty if it is absent."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Terminal(f"{path}: {value!r:.80} instead of a mapping")
    return dict(value)


def as_list(value: Any, path: str) -> list[Any]:
    """A shallow copy of a list; empty if it is absent."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Terminal(f"{path}: {value!r:.80} instead of a list")
    return list(value)


def as_mappings(value: Any, path: str) -> list[dict[str, Any]]:
    """A list of mappings, each a shallow copy; empty if it is absent."""
    return [as_mapping(one, f"{path}[{at}]") for at, one in enumerate(as_list(value, path))]


DIRECTORY: Final = "/run/gang"
"""What gangctl brings: the supervisor, gangclient, and the sidecar's sockets. Only the sidecar writes there."""
STATE_DIRECTORY: Final = "/run/gang-state"
"""What the worker's container writes: the supervisor's state, the host file, caches of compilers."""
HUB_DIRECTORY: Final = "/run/gang-hub"
"""What leads the sidecar to the hub, and proves its identity there. No other container has it."""

SHARED_VOLUME: Final = "gangctl"
STATE_VOLUME: Final = "gangctl-state"
HUB_VOLUME: Final = "gangctl-hub"

_NAMES: Final = frozenset({SIDECAR, SHARED_VOLUME, STATE_VOLUME, HUB_VOLUME})
_WORKER_DIRECTORIES: Final = (DIRECTORY, STATE_DIRECTORY)
_SAME: Final = (("/var/run/", "/run/"),)
"""A symlink in most images: the runtime follows it."""
_MOUNTS: Final = (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath"))


def refuse_reserved(entries: Mapping[str, Sequence[dict[str, Any]]], worker: int, path: str) -> None:
    """Refuse a template that uses what belongs to gangctl.

    Args:
        entries: The template's ``initContainers``, ``containers`` and ``volumes``.
        worker: Index of the worker's container.
        path: Path of the template's spec in the job, for errors.

    Raises:
        Terminal: it does; the text names the field.
    """
    for key, those in entries.items():
        for at, entry in enumerate(those):
            here = f"{path}.{key}[{at}]"
            if entry.get("name") in _NAMES:
                raise Terminal(f"{here}.name: {entry['name']} is a name that gangctl uses in each pod; choose another")
            for field, name in _mounted(entry, here):
                if name in _NAMES:
                    raise Terminal(
                        f"{field}: {name} is a volume of gangctl, which no other container may mount; declare a volume "
                        "of your own"
                    )
    lifecycle = f"{path}.containers[{worker}].lifecycle"
    stop = as_mapping(entries["containers"][worker].get("lifecycle"), lifecycle).get("stopSignal")
    if stop is not None and stop not in STOP_SIGNALS:
        raise Terminal(
            f"{lifecycle}.stopSignal: {stop!r:.80} doesn't stop gangctl's supervisor, which would send the worker "
            f"SIGTERM; remove it, or choose from {', '.join(STOP_SIGNALS)}"
        )
    for field, place in _places(entries["containers"][worker], f"{path}.containers[{worker}]"):
        if any(_is_in(place, folder) for folder in _WORKER_DIRECTORIES):
            raise Terminal(f"{field}: {place} is used by gangctl's supervisor; choose a path elsewhere")


def _mounted(container: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """The field and the name of each volume that a container uses."""
    for key, _ in _MOUNTS:
        for at, mount in enumerate(as_mappings(container.get(key), f"{path}.{key}")):
            yield f"{path}.{key}[{at}].name", mount.get("name")


def _places(container: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """The field and the path of each thing that is put into a container's file system."""
    found: Iterable[tuple[str, Any]] = [
        (f"{path}.{key}[{at}].{place}", mount.get(place))
        for key, place in _MOUNTS
        for at, mount in enumerate(as_mappings(container.get(key), f"{path}.{key}"))
    ]
    for field, place in (*found, (f"{path}.terminationMessagePath", container.get("terminationMessagePath"))):
        if isinstance(place, str):
            yield field, place


def _is_in(place: str, folder: str) -> bool:
    """Return whether a path is this folder or below it, as the runtime finds it: a relative path begins at the root."""
    normal = posixpath.normpath("/" + place.lstrip("/"))
    for link, target in _SAME:
        if normal.startswith(link):
            normal = target + normal.removeprefix(link)
    return normal == folder or normal.startswith(f"{folder}/")


CPU: Final = "250m"
"""The sidecar's limit if none is configured: it needs 0.12 s of CPU to connect, and little after that."""
MEMORY: Final = "128Mi"
"""The same: it needs 27 MB."""


def sidecar_resources(
    configured: Mapping[str, Any], containers: Sequence[dict[str, Any]], pod_resources: Any
) -> dict[str, Any]:
    """The sidecar's resources.

    Args:
        configured: Those of the controller's settings.
        containers: All containers of the template, init containers too.
        pod_resources: Resources of the template's pod as a whole.
    """
    made = deepcopy(dict(configured))
    if pod_resources or not all(_is_guaranteed(one) for one in containers):
        return made
    limits, requests = as_mapping(made.get("limits"), "limits"), as_mapping(made.get("requests"), "requests")
    same = {
        "cpu": limits.get("cpu") or CPU,
        "memory": limits.get("memory") or requests.get("memory") or MEMORY,
    }
    return {**made, "requests": {**requests, **same}, "limits": {**limits, **same}}


def _is_guaranteed(container: dict[str, Any]) -> bool:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return False
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    if not isinstance(limits, dict) or not isinstance(requests, dict):
        return False
    for name in ("cpu", "memory"):
        limit = quantity(limits.get(name))
        if not limit or (requests.get(name) is not None and quantity(requests[name]) != limit):
            return False
    return True


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
RESTART_ALL: Final = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
"""KEP-5532: unless the supervisor ends with 0, the kubelet restarts all containers of the pod, without a back-off."""


def escape_dollars(text: str) -> str:
    """A string that the kubelet expands to exactly ``text``."""
    return text.replace("$", "$$")


def supervised_container(
    container: dict[str, Any],
    path: str,
    *,
    uid: str,
    create: CreatePod,
    variables: Mapping[str, str],
    restart_all: bool,
) -> dict[str, Any]:
    """The worker's container with the supervisor as its entry point.

    Args:
        container: The user's container, as JSON values.
        path: Path of it in the job, for errors.
        uid: UID of the gang.
        create: The pod's member and incarnation.
        variables: of this role for the supervisor, which does not pass them on.
        restart_all: Whether the nodes support RestartAllContainers.
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
        **variables,
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
