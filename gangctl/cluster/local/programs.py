"""A new pod on this machine: the command from its template, its files, and its sidecar and supervisor."""

import errno
import os
import re
import secrets
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gangctl.api.gangjob import Container, GangJob, Role
from gangctl.api.names import parse_member_name, pod_name
from gangctl.api.roles import preloaded
from gangctl.cluster import clock
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.atomic_files import sync_folder, unwritable, write_file
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY
from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory, runtime_directory
from gangctl.cluster.local.pod_record import LOOPBACK, PodRecord
from gangctl.cluster.local.process import LocalProcess, spawn
from gangctl.core.policy.pods import CreatePod
from gangsidecar.wire import FRAMEWORK_SOCKET, PRELOAD_VARIABLE, SUPERVISOR_SOCKET, Compiler

# Makes a command for this machine from a role's pod template.
#
# It uses command, args, workingDir and env (name and value) of the worker container. Image, resources, volumes and
# other containers have no effect; :func:`ignored_fields` lists them. A template that needs what this machine lacks is
# rejected.


_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_WITHOUT_EFFECT: Final = ("volumes", "nodeSelector", "affinity", "tolerations", "securityContext", "resourceClaims")


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a worker, with its environment and directory."""

    words: tuple[str, ...]
    environment: dict[str, str]
    directory: Path
    grace_seconds: int


def command(job: GangJob, member: str, inherited: Mapping[str, str]) -> Command:
    """The command of a member's worker. ``inherited``: the environment that the template's environment is added to.

    Raises:
        Terminal: the role doesn't exist, or its template can't be run on this machine.
    """
    name, _ = parse_member_name(member)
    role = next((role for role in job.spec.roles if role.name == name), None)
    if role is None:
        raise Terminal(f"there is no role {name!r} in gang {job.metadata.name}")
    wrong = _refusals(role, f"spec.roles[{name}]")
    if wrong:
        raise Terminal(wrong[0])
    extra = job.metadata.model_extra or {}
    return _of_role(role, Path(extra.get("annotations", {}).get(ANNOTATION_DIRECTORY, "/")), inherited)


def _of_role(role: Role, here: Path, inherited: Mapping[str, str]) -> Command:
    container = role.worker.model_extra or {}
    pod = role.template.spec.model_extra or {}
    return Command(
        words=(*role.worker.command, *container.get("args", ())),
        environment=_environment(container.get("env", ()), inherited) | _start(role),
        directory=here / container.get("workingDir", ""),
        grace_seconds=pod.get("terminationGracePeriodSeconds", 30),
    )


def _start(role: Role) -> dict[str, str]:
    """Also where nothing is preloaded: the shell from which a user runs the gang may have the variable."""
    return {PRELOAD_VARIABLE: preloaded(role.start)}


def run_obstacles(job: GangJob, here: Path | None = None) -> tuple[str, ...]:
    """The reasons why a job can't run on this machine: one message for each field, with what was found and what to do.

    With ``here``, also what the system says of a start in this folder.
    """
    found: list[str] = []
    for at, role in enumerate(job.spec.roles):
        path = f"spec.roles[{at}]"
        wrong = _refusals(role, path)
        if not wrong and here is not None:
            wrong = _of_system(_of_role(role, here, os.environ), path)
        found += wrong
    if here is not None:
        try:
            runtime_directory()
        except Terminal as error:
            found.append(str(error))
    return tuple(found)


def _of_system(own: Command, path: str) -> list[str]:
    """The system's objection to a process with these words and this environment in this directory."""
    words = tuple(map(_encoded, ("/bin/sh", "-c", ":", *own.words)))
    environment = {_encoded(name): _encoded(value) for name, value in {**os.environ, **own.environment}.items()}
    there = _encoded(str(own.directory))
    try:
        subprocess.run(words, cwd=there, env=environment, check=False, capture_output=True)  # noqa: S603 - a no-op
    except OSError as error:
        if error.errno == errno.E2BIG:
            return [f"{path}: command, args and env can't be given to a process: {error.strerror}"]
        return [f"{path}: workingDir: {own.directory}: {error.strerror}; the command starts there"]
    except ValueError as error:
        return [f"{path}: command, args, env or workingDir can't be given to a process: {error}"]
    return []


def _encoded(text: str) -> bytes:
    """In UTF-8 whatever the locale is, as the controller gives it to a process."""
    return text.encode("utf-8", "surrogateescape")


def ignored_fields(job: GangJob) -> tuple[str, ...]:
    """Parts of a job that have no effect on this machine, as messages."""
    messages: list[str] = []
    for at, role in enumerate(job.spec.roles):
        path = f"spec.roles[{at}].template.spec"
        pod = role.template.spec.model_extra or {}
        others = [container.name for container in role.template.spec.containers if container is not role.worker]
        others += [str(_get(container, "name")) for container in _list(pod.get("initContainers"))]
        if others:
            messages.append(f"{path}: local mode starts only container {role.worker.name}, not {', '.join(others)}")
        limited = _limited(role.worker)
        if limited:
            messages.append(
                f"{path}: the resources {', '.join(limited)} have no effect in local mode: nothing limits or reserves "
                "them, and all processes see all devices of this machine"
            )
        found = [name for name in _WITHOUT_EFFECT if pod.get(name)]
        if found:
            messages.append(f"{path}: {', '.join(found)} have no effect in local mode")
    return tuple(messages)


def _limited(container: Container) -> list[str]:
    """Names of the resources that a container asks for: cpu, memory, devices."""
    resources = (container.model_extra or {}).get("resources")
    sides = [_get(resources, side) for side in ("limits", "requests")]
    return list(dict.fromkeys(str(name) for side in sides if isinstance(side, dict) for name in side))


def _refusals(role: Role, path: str) -> list[str]:
    at = role.template.spec.containers.index(role.worker)
    path = f"{path}.template.spec.containers[{at}]"
    container = role.worker.model_extra or {}
    messages = []
    if not role.worker.command:
        messages.append(
            f"{path}.command: missing; local mode needs the command, because it does not know the image's entry point"
        )
    if not _are_strings(container.get("args", ())):
        messages.append(f"{path}.args: {container['args']!r:.80} instead of a list of strings")
    if not isinstance(container.get("workingDir", ""), str):
        messages.append(f"{path}.workingDir: {container['workingDir']!r:.80} instead of a string")
    if container.get("envFrom"):
        messages.append(f"{path}.envFrom: local mode has no ConfigMaps and Secrets; set the variables in env")
    if not isinstance(container.get("env", []), list | tuple):
        messages.append(f"{path}.env: {container['env']!r:.80} instead of a list, as in [{{name: LR, value: '0.1'}}]")
    for number, entry in enumerate(_list(container.get("env"))):
        name, value = _get(entry, "name"), _get(entry, "value")
        if _get(entry, "valueFrom") is not None:
            messages.append(f"{path}.env[{number}].valueFrom: local mode can't resolve it; set a value for {name}")
        elif not isinstance(name, str) or not name or "=" in name or not isinstance(value, str | None):
            messages.append(f"{path}.env[{number}]: {entry!r:.80} instead of a name and a value, both strings")
    grace = (role.template.spec.model_extra or {}).get("terminationGracePeriodSeconds", 30)
    if type(grace) is not int or grace < 0:
        messages.append(
            f"{path.rpartition('.')[0]}.terminationGracePeriodSeconds: {grace!r:.40} instead of whole seconds"
        )
    return messages


def _environment(entries: Any, inherited: Mapping[str, str]) -> dict[str, str]:
    """Names and values; ``$(NAME)`` refers to variables defined before, as in the kubelet."""
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


# A new pod of local mode, as files: what is stored before its processes start.


def store_pod(state: StateDirectory, folder: GangFolder, job: GangJob, create: CreatePod) -> PodRecord:
    """Write the files of a new pod. This is blocking."""
    worker = command(job, create.member, os.environ)
    uid = str(uuid.uuid4())
    stored = PodRecord(
        name=pod_name(job.metadata.name, create.member, create.incarnation),
        uid=uid,
        gang=job.metadata.uid,
        member=create.member,
        incarnation=create.incarnation,
        created=clock.now(),
        token=secrets.token_urlsafe(32),
        sockets=str(runtime_directory() / uid.replace("-", "")[:16]),
        command=worker.words,
        environment=worker.environment,
        directory=str(worker.directory),
        grace_seconds=worker.grace_seconds,
    )
    pod = folder.pod(stored.name)
    try:
        pod.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        pod.state_file.unlink(missing_ok=True)
        pod.termination_log.unlink(missing_ok=True)
        write_file(pod.program, state.program.read_bytes(), durable=False)
        write_file(pod.token, stored.token.encode(), durable=False)
        pod_record.save_pod(pod, stored, durable=True)
        sync_folder(folder.pods)
    except OSError as error:
        raise unwritable(pod.path, error) from error
    return stored


@dataclass(frozen=True, slots=True)
class Programs:
    """Starts the programs with the controller's own Python and environment."""

    state: StateDirectory

    def install(self) -> None:
        """Put the supervisor and gangclient into the state directory."""
        state = self.state.path
        command = (sys.executable, "-P", "-m", "gangsidecar.install", str(state))
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own program
        except OSError as error:
            raise Terminal(f"{state} can't be set up: {error}") from error
        if done.returncode != 0:
            raise Terminal(f"the supervisor can't be installed in {state}: {done.stderr.strip()}")

    def start_sidecar(self, pod: PodRecord, folder: PodFolder) -> LocalProcess:
        Path(pod.sockets).mkdir(mode=0o700, exist_ok=True)
        command = [
            *(sys.executable, "-P", "-m", "gangsidecar.agent"),
            *("--controller-file", str(self.state.url), "--token-file", str(folder.token), "--dir", pod.sockets),
        ]
        return spawn(command, os.environ, folder.path, folder.sidecar_log)

    def start_supervisor(self, pod: PodRecord, folder: PodFolder) -> LocalProcess:
        """Start the supervisor of a pod, which starts the worker on the controller's order."""
        sockets = Path(pod.sockets)
        sockets.mkdir(mode=0o700, exist_ok=True)
        flags = {
            "--socket": str(sockets / SUPERVISOR_SOCKET),
            "--state": str(folder.state_file),
            "--termination-log": str(folder.termination_log),
            "--gang": pod.gang,
            "--member": pod.member,
            "--incarnation": str(pod.incarnation),
            "--pod": pod.uid,
            "--address": LOOPBACK,
            "--client-dir": str(self.state.client),
            # The others keep theirs in the user's home or in /tmp already, for longer than a gang lives.
            "--caches": Compiler.JAX.value,
            "--caches-dir": str(folder.caches),
            "--log": str(folder.supervisor_log),
        }
        words = [word for flag in flags.items() for word in flag]
        command = [sys.executable, "-IS", str(folder.program), "run", *words, "--", *pod.command]
        environment = {
            **os.environ,
            **pod.environment,
            "GANG_SOCKET": str(sockets / FRAMEWORK_SOCKET),
        }
        return spawn(command, environment, Path(pod.directory), folder.worker_log)
