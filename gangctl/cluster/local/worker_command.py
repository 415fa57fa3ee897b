"""From a role's template to a command on this machine: the part of a pod's spec that makes sense without a container.

Command, args, workingDir and env (name and value) of the worker's container are used; image, resources, volumes and
other containers mean nothing here and are ignored, which :func:`ignored` says. What can't be ignored is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gangctl.api.gangjob import GangJob, Role
from gangctl.api.names import parse_member_name
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_WITHOUT_EFFECT: Final = ("volumes", "nodeSelector", "affinity", "tolerations", "securityContext", "resourceClaims")


@dataclass(frozen=True, slots=True)
class Command:
    """What the supervisor of a member starts, and in what surroundings."""

    words: tuple[str, ...]
    environment: dict[str, str]
    directory: Path
    grace_seconds: int


def command(job: GangJob, member: str, inherited: Mapping[str, str]) -> Command:
    """The worker of a member. ``inherited``: the environment that the template's is added to.

    Raises:
        Terminal: the member's role isn't in the job, or its template can't be run here.
    """
    name, _ = parse_member_name(member)
    role = next((role for role in job.spec.roles if role.name == name), None)
    if role is None:
        raise Terminal(f"there is no role {name!r} in gang {job.metadata.name}")
    wrong = _refusals(role, f"spec.roles[{name}]")
    if wrong:
        raise Terminal(wrong[0])
    container = role.worker.model_extra or {}
    extra = job.metadata.model_extra or {}
    here = Path(extra.get("annotations", {}).get(ANNOTATION_DIRECTORY, "/"))
    pod = role.template.spec.model_extra or {}
    return Command(
        words=(*role.worker.command, *container.get("args", ())),
        environment=_environment(container.get("env", ()), inherited),
        directory=here / container.get("workingDir", ""),
        grace_seconds=pod.get("terminationGracePeriodSeconds", 30),
    )


def refusals(job: GangJob) -> tuple[str, ...]:
    """What of a job can't be run on this machine: each says the field, what was found and what to do."""
    return tuple(text for at, role in enumerate(job.spec.roles) for text in _refusals(role, f"spec.roles[{at}]"))


def ignored(job: GangJob) -> tuple[str, ...]:
    """What of a job has no effect on this machine, as sentences."""
    said: list[str] = []
    for at, role in enumerate(job.spec.roles):
        path = f"spec.roles[{at}].template.spec"
        pod = role.template.spec.model_extra or {}
        others = [container.name for container in role.template.spec.containers if container is not role.worker]
        others += [str(_get(container, "name")) for container in _list(pod.get("initContainers"))]
        if others:
            said.append(f"{path}: local mode starts {role.worker.name} only, not {', '.join(others)}")
        found = [name for name in _WITHOUT_EFFECT if pod.get(name)]
        if found:
            said.append(f"{path}: {', '.join(found)} have no effect in local mode")
    return tuple(said)


def _refusals(role: Role, path: str) -> list[str]:
    at = role.template.spec.containers.index(role.worker)
    path = f"{path}.template.spec.containers[{at}]"
    container = role.worker.model_extra or {}
    said = []
    if not role.worker.command:
        said.append(f"{path}.command: missing; the worker's command is needed, for the image's own is not known here")
    if not _are_strings(container.get("args", ())):
        said.append(f"{path}.args: {container['args']!r:.80} instead of a list of strings")
    if not isinstance(container.get("workingDir", ""), str):
        said.append(f"{path}.workingDir: {container['workingDir']!r:.80} instead of a string")
    if container.get("envFrom"):
        said.append(f"{path}.envFrom: there is no ConfigMap and no Secret in local mode; write the variables under env")
    for number, entry in enumerate(_list(container.get("env"))):
        name, value = _get(entry, "name"), _get(entry, "value")
        if _get(entry, "valueFrom") is not None:
            said.append(f"{path}.env[{number}].valueFrom: nothing to take {name} from in local mode; give it a value")
        elif not isinstance(name, str) or not name or "=" in name or not isinstance(value, str | None):
            said.append(f"{path}.env[{number}]: {entry!r:.80} instead of a name and a value, both strings")
    grace = (role.template.spec.model_extra or {}).get("terminationGracePeriodSeconds", 30)
    if type(grace) is not int or grace < 0:
        said.append(f"{path.rpartition('.')[0]}.terminationGracePeriodSeconds: {grace!r:.40} instead of whole seconds")
    return said


def _environment(entries: Any, inherited: Mapping[str, str]) -> dict[str, str]:
    """Names and values, with ``$(NAME)`` of what was defined before, as the kubelet does it."""
    known: dict[str, str] = {}

    def expanded(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else known.get(name, inherited.get(name, match[0]))

    for entry in entries:
        known[entry["name"]] = _REFERENCE.sub(expanded, entry.get("value") or "")
    return known


def _are_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _get(entry: Any, key: str) -> Any:
    return entry.get(key) if isinstance(entry, dict) else None
