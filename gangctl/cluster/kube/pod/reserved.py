"""What belongs to gangctl in a pod: names of its container and volumes, and its folders in the worker's container.

The rule: a template that uses one of them is refused, with the path of the field. No container of the user, the
worker's included, may mount a volume of gangctl by name: the token is the sidecar's alone, and programs are not to be
written. In the worker's container nothing may lie on or below a folder of gangctl. A mount *above* one is harmless,
since container runtimes mount in the order of depth.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gangctl.api.names import SIDECAR
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod.fields import as_mappings

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
    """Whether a path is this folder or below it, as the runtime finds it: a relative path begins at the root."""
    normal = posixpath.normpath("/" + place.lstrip("/"))
    for link, target in _SAME:
        if normal.startswith(link):
            normal = target + normal.removeprefix(link)
    return normal == folder or normal.startswith(f"{folder}/")
