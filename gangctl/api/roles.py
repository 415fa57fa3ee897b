"""Roles: named groups of equal members, their pod templates, how their processes are started, and their ranks.

The layout of a gang: which members and places its roles make, in order.

The rule: it follows from the roles alone, so it is made once for equal roles: a decision must not name 10,000 members
again. What it returns must not be changed.

Numbering: which ranks each place has.

The rule: ranks are counted per process group, in the order of roles and indexes; a place of no group gets none. They
depend on the roles alone, so they must not change when a member is replaced.

Sizes: an attempt with fewer members than are wanted (``core/policy/size.py``) has the first places of a role. The
members without a place are spares, and the ranks are dense, also where rank 0 is lost.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, Tag

from gangctl.api.model import Constraint, Model, Refused, RoleName, changed, kind, unique_names
from gangctl.api.names import member_name

# The part of a pod template that gangctl reads. Everything else is kept as written.


class Container(Model):
    """A container, with the fields that gangctl reads."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
    """Name, unique in the pod."""
    command: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Field(max_length=256)] = ()
    """Required for the worker container. $(VAR) is expanded for each attempt."""
    liveness_probe: dict[str, Any] | None = None
    """Not allowed on the worker container."""
    startup_probe: dict[str, Any] | None = None
    """Not allowed on the worker container."""
    readiness_probe: dict[str, Any] | None = None
    """Roles with dependsOn wait for it."""


class PodSpec(Model):
    """A pod spec. gangctl declares only the fields that it reads; all other Kubernetes fields are allowed."""

    model_config = ConfigDict(extra="allow")

    constraints = (
        unique_names("containers", "self.containers.all(c, self.containers.exists_one(o, o.name == c.name))"),
    )

    containers: Annotated[tuple[Container, ...], Field(min_length=1, max_length=16)]
    """The first is the worker container, unless workerContainer names another."""
    restart_policy: Annotated[
        Literal["Never", "OnFailure"],
        Refused(
            {
                "Always": "the pods of a gang must be able to end; gangctl restarts their workers itself, "
                "and a pod that always restarts could never succeed"
            }
        ),
    ] = "Never"
    """For init containers and containers beside the worker's, as in a Job. With Never, the default, a failed init
    container ends the pod. On nodes without RestartAllContainers, failed containers are always retried."""
    scheduling_gates: Annotated[tuple[dict[str, Any], ...], Field(max_length=32)] = ()
    """With these, a member's next pod is created when its last one has ended."""


class Template(Model):
    """A PodTemplateSpec."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    """Labels and annotations. gangctl adds its own, which start with gangctl.io/."""
    spec: PodSpec
    """Pod spec. gangctl adds its sidecar, and its supervisor before the worker's command."""
    _kept: bytes = PrivateAttr(b"")
    """Compressed JSON of the whole template, where this value has only a part of it; see ``stored.py``."""

    def keep(self, text: bytes) -> None:
        """Keep this compressed JSON: this value is only a part of it. To be called before anything else has it."""
        self._kept = text

    @property
    def kept(self) -> bytes:
        """What :meth:`keep` was given; empty if this value is the whole template."""
        return self._kept

    @property
    def written(self) -> dict[str, Any]:
        """The whole template as the user wrote it, as JSON values of the caller's own."""
        if not self._kept:
            return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        written: dict[str, Any] = json.loads(zlib.decompress(self._kept))
        return written


# How the processes of a worker are started: executed, or forked from a template that has imported what they import.


ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$", max_length=255)]


class AutoPreload(Model):
    """What the worker imports from installed packages by its first step."""

    type: Literal["Auto"] = "Auto"


class ModulesPreload(Model):
    """The named modules."""

    type: Literal["Modules"]
    modules: Annotated[tuple[ModuleName, ...], Field(min_length=1, max_length=64)]
    """Installed Python modules, such as torch or torch.optim."""


Preload = Annotated[
    Annotated[AutoPreload, Tag("Auto")] | Annotated[ModulesPreload, Tag("Modules")],
    kind("type", "Auto"),
]


class ExecStart(Model):
    """Each Python is executed."""

    type: Literal["Exec"]


class ForkStart(Model):
    """Each Python is forked, if possible, from a template with its imports."""

    type: Literal["Fork"] = "Fork"
    preload: Preload = Field(default_factory=AutoPreload)
    """What the template imports."""


Start = Annotated[
    Annotated[ExecStart, Tag("Exec")] | Annotated[ForkStart, Tag("Fork")],
    kind("type", "Fork"),
]


def preloaded(start: ExecStart | ForkStart) -> str:
    """What a supervisor is told: ``Auto``, or modules with commas between them; empty if the command is executed."""
    match start:
        case ForkStart(preload=ModulesPreload(modules=modules)):
            return ",".join(modules)
        case ForkStart():
            return "Auto"
        case _:
            return ""


class Launch(StrEnum):
    """How gangctl starts processes from the command of the worker container."""

    COMMAND = "Command"
    """The command is started once in each pod."""
    PER_PROCESS = "PerProcess"
    """The command is started `processesPerPod` times, each time with its own rank."""
    TORCHRUN = "Torchrun"
    """The command is started once in each pod, with torchrun's own variables."""


class RoleDependency(Model):
    """A role that another one waits for."""

    name: RoleName
    """Name of the role."""
    status: Annotated[
        Literal["Ready"],
        Refused({"Complete": "the workers of a gang run together; what ends before belongs into a gang of its own"}),
    ] = "Ready"
    """Ready: each required member runs its worker or has finished, and its pod is ready."""


class StepSizes(Model):
    """Sizes in equal steps."""

    type: Literal["Step"] = "Step"
    step: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Difference between two sizes, counted from replicas down."""


class ListedSizes(Model):
    """The listed sizes."""

    type: Literal["List"]
    counts: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000)], ...], Field(min_length=1, max_length=64)]
    """Sizes such as 8 and 12. minReplicas and replicas are allowed as well."""


Sizes = Annotated[
    Annotated[StepSizes, Tag("Step")] | Annotated[ListedSizes, Tag("List")],
    kind("type", "Step"),
]

_IS_WORKER = "c.name == (has(self.workerContainer) ? self.workerContainer : self.template.spec.containers[0].name)"
_PROBE = (
    "the worker container must not have a {0}, because while the gang gathers, its worker is stopped on purpose, "
    "and the {0} would kill the waiting member"
)


class Role(Model):
    """Equal members with one pod template and launch mode."""

    constraints = (
        Constraint(
            "workerContainer must name one of the template's containers",
            lambda role: (
                role.worker_container is None
                or any(one.name == role.worker_container for one in role.template.spec.containers)
            ),
            "!has(self.workerContainer) || self.template.spec.containers.exists(c, c.name == self.workerContainer)",
            ("workerContainer", "template.spec.containers"),
        ),
        Constraint(
            "the worker container must have a command, because gangctl starts it itself "
            "and does not know the entry point of the image; docker inspect, crane config or "
            "skopeo inspect --config show it: write its Entrypoint, and its Cmd if there are no args",
            lambda role: bool(role.worker.command),
            f"self.template.spec.containers.all(c, !({_IS_WORKER}) || (has(c.command) && size(c.command) > 0))",
            ("template.spec.containers", "workerContainer"),
        ),
        Constraint(
            _PROBE.format("livenessProbe"),
            lambda role: role.worker.liveness_probe is None,
            f"self.template.spec.containers.all(c, !({_IS_WORKER}) || !has(c.livenessProbe))",
            ("template.spec.containers", "workerContainer"),
        ),
        Constraint(
            _PROBE.format("startupProbe"),
            lambda role: role.worker.startup_probe is None,
            f"self.template.spec.containers.all(c, !({_IS_WORKER}) || !has(c.startupProbe))",
            ("template.spec.containers", "workerContainer"),
        ),
        Constraint(
            "launch Torchrun needs a process group, because torchrun numbers its nodes",
            lambda role: role.launch is not Launch.TORCHRUN or role.group != "",
            "self.launch != 'Torchrun' || !has(self.processGroup) || self.processGroup != ''",
            ("processGroup", "launch"),
        ),
        Constraint(
            "minReplicas must be at most replicas, because that is the size that is wanted",
            lambda role: role.min_replicas is None or role.min_replicas <= role.replicas,
            "!has(self.minReplicas) || self.minReplicas <= self.replicas",
            ("minReplicas", "replicas"),
        ),
    )

    name: RoleName
    """Name, unique in the gang and part of the names of members (worker-0) and pods."""
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of required members."""
    min_replicas: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Least number of members of an attempt, which starts with fewer than replicas after recovery.shrinkAfterSeconds.
    If absent, all replicas."""
    sizes: Sizes = Field(default_factory=StepSizes)
    """Allowed numbers of members between minReplicas and replicas. No effect without minReplicas."""
    spares: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Number of standby members. The worker of a spare starts only when it takes over the rank of a lost pod."""
    process_group: Annotated[str, Field(pattern=r"^([a-z][a-z0-9]{0,14})?$", max_length=15)] | None = None
    """Roles with the same value form one world of ranks, with one master. If absent, the name of the role. If empty,
    the role has no ranks."""
    depends_on: Annotated[tuple[RoleDependency, ...], Field(max_length=8)] = ()
    """Roles whose workers start before this role's, in each attempt. Pods are created together. After a restart, a
    readinessProbe of theirs must have passed again or have had time to fail; a low failureThreshold makes that fast."""
    processes_per_pod: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of ranks in each pod, usually of its devices."""
    launch: Launch = Launch.COMMAND
    """Command: the command is started once in each pod; it starts further processes itself. PerProcess: processesPerPod
    times, each with its own RANK and LOCAL_RANK. Torchrun: once in each pod, with torchrun's PET_ variables."""
    start: Start = Field(default_factory=ForkStart)
    """How the worker's Pythons are started."""
    worker_container: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Container whose command is the worker. If absent, the first."""
    template: Template
    """PodTemplateSpec."""

    @property
    def group(self) -> str:
        """Process group of this role; empty if it has no ranks."""
        return self.name if self.process_group is None else self.process_group

    @property
    def worker(self) -> Container:
        """The container whose command is the worker."""
        wanted = self.worker_container
        return next((c for c in self.template.spec.containers if c.name == wanted), self.template.spec.containers[0])


# The hash of the roles, to detect whether they differ from those of an attempt

LENGTH = 16
"""Hexadecimal digits: 64 bits, enough to make accidental collisions impossible in practice."""
_LARGE: Final = 64 * 1024
"""Bytes of compressed templates from which on the hash is not remembered."""


def roles_hash(roles: Sequence[Role]) -> str:
    """A short hash of the roles' canonical JSON.

    It does not depend on the process, the Python release, the order of keys, or whether defaults are written. It
    depends on the order of roles, because ranks are assigned in this order.
    """
    plain = [role.model_dump(mode="json", by_alias=True, exclude_defaults=True) for role in roles]
    kept = tuple(role.template.kept for role in roles)
    if not any(kept):
        return _hash_of(plain)
    # Of compact roles, the whole templates have to be parsed: not with each decision.
    known = _of_compact if sum(map(len, kept)) <= _LARGE else _of_compact.__wrapped__
    return known(_text(plain), kept)


@lru_cache(256)
def _of_compact(roles: str, templates: tuple[bytes, ...]) -> str:
    """The hash of roles that have only parts of these templates."""
    whole = (Template.model_validate_json(zlib.decompress(one)) for one in templates)
    plain = (one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in whole)
    return _hash_of([{**role, "template": template} for role, template in zip(json.loads(roles), plain, strict=True)])


def _hash_of(plain: list[dict[str, Any]]) -> str:
    return hashlib.sha256(_text(plain).encode()).hexdigest()[:LENGTH]


def _text(plain: list[dict[str, Any]]) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


# The layout of a gang


_T = TypeVar("_T")
_KEPT: Final = 200_000
"""Of so many members the layout is remembered, of all gangs together, at about 300 bytes each: more only cost time."""
_LEAST: Final = 100
"""A set of roles costs as much as so many members, however few it has."""


@dataclass(frozen=True, slots=True)
class Member:
    """One place in the gang."""

    name: str
    role: Role
    index: int

    @property
    def is_spare(self) -> bool:
        """Beyond the needed ones: it has no place of its own."""
        return self.index >= self.role.replicas


@dataclass(frozen=True, slots=True)
class Layout:
    """All members of a gang, and those that have a place."""

    members: Mapping[str, Member]
    """By name, in the order of roles and indexes; spares come last in their role."""
    places: Mapping[str, Member]
    """The needed members by name: the places that must be filled."""
    own: Mapping[str, str]
    """Place -> the member of the same name: its holder by default."""
    places_of: Mapping[str, frozenset[str]]
    """Role -> its places."""


class _ByValue:
    """Roles as a key: equal roles are one key, and the hash doesn't look into their templates."""

    __slots__ = ("_hash", "roles")

    def __init__(self, roles: tuple[Role, ...]) -> None:
        self.roles = roles
        self._hash = hash(tuple((role.name, role.replicas, role.spares) for role in roles))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and self.roles == other.roles


def for_roles(function: Callable[[tuple[Role, ...]], _T]) -> Callable[[tuple[Role, ...]], _T]:
    """Make ``function`` remember what it made of equal roles: of those that were asked for last."""
    known: dict[_ByValue, _T] = {}
    size = 0

    def remembered(roles: tuple[Role, ...]) -> _T:
        nonlocal size
        key = _ByValue(roles)
        found = known.pop(key, None)  # It compares roles once, and once is much.
        if found is not None:
            known[key] = found
            return found
        found = known[key] = function(roles)
        size += _size(roles)
        while size > _KEPT and len(known) > 1:
            oldest = next(iter(known))
            del known[oldest]
            size -= _size(oldest.roles)
        return found

    return remembered


def _size(roles: tuple[Role, ...]) -> int:
    return _LEAST + sum(role.replicas + role.spares for role in roles)


@for_roles
def layout(roles: tuple[Role, ...]) -> Layout:
    members = {member.name: member for role in roles for member in members_of(role)}
    places = {name: member for name, member in members.items() if not member.is_spare}
    of_roles = {role.name: frozenset(name for name in places if places[name].role is role) for role in roles}
    return Layout(members, places, {name: name for name in places}, of_roles)


def with_sizes(roles: tuple[Role, ...], sizes: Mapping[str, int]) -> tuple[Role, ...]:
    """The roles with these numbers of places; one that isn't named keeps its own. The members stay the same."""
    return tuple(
        [
            role
            if sizes.get(role.name, role.replicas) >= role.replicas
            else changed(role, replicas=sizes[role.name], spares=role.spares + role.replicas - sizes[role.name])
            for role in roles
        ]
    )


def members_of(role: Role) -> tuple[Member, ...]:
    """The members of one role, spares last."""
    return tuple(Member(member_name(role.name, at), role, at) for at in range(role.replicas + role.spares))


# Numbering


def number_places(roles: tuple[Role, ...]) -> Numbering:
    return _numbered(roles)


@dataclass(frozen=True)
class Numbering:
    """Who has which ranks: places are numbered within their process group, in the order of roles and indexes."""

    all_roles: tuple[Role, ...]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Process group -> its places in the order of their node ranks. Without the places that have no ranks."""
        groups: dict[str, list[str]] = {}
        for role in self.all_roles:
            if role.group:
                groups.setdefault(role.group, []).extend(member_name(role.name, at) for at in range(role.replicas))
        return groups

    @cached_property
    def node_ranks(self) -> dict[str, int]:
        """Place -> its number among the places of its group."""
        return {place: rank for places in self.groups.values() for rank, place in enumerate(places)}

    @cached_property
    def ranks(self) -> dict[str, tuple[int, ...]]:
        """Place -> its ranks, as many as it has processes (torchrun's children included)."""
        ranks: dict[str, tuple[int, ...]] = {}
        for places in self.groups.values():
            first = 0
            for place in places:
                after = first + self.roles[place].processes_per_pod
                ranks[place] = tuple(range(first, after))
                first = after
        return ranks

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Place -> its role."""
        return {name: member.role for name, member in layout(self.all_roles).places.items()}

    def world_size(self, group: str) -> int:
        """How many ranks the group has."""
        return sum(role.replicas * role.processes_per_pod for role in self.all_roles if role.group == group)


@for_roles
def _numbered(roles: tuple[Role, ...]) -> Numbering:
    return Numbering(roles)
