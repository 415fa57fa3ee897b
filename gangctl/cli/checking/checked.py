"""What is found out about a manifest: by the core, by the folder that it would run in, and by this machine."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangctl.api.changes import changed
from gangctl.api.checkpoint_status import RestorePoint
from gangctl.api.gangjob import DirectorySource, GangJob, Metadata, Tier
from gangctl.cli.local import disk_checkpoints
from gangctl.cli.local.disk_checkpoints import Recognised, Step
from gangctl.cli.manifests import unfamiliar
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY
from gangctl.cluster.local.worker_command import Command, command, ignored, refusals
from gangctl.core.policy.checkpoints import folder_rule
from gangctl.explain import forecast
from gangctl.explain.forecast import ForecastMember
from gangsidecar.wire import PRELOAD_VARIABLE

LISTED_STEPS = 5


@dataclass(frozen=True, slots=True)
class TierFound:
    """A tier, and what is in its directory now."""

    tier: Tier
    steps: tuple[Step, ...] = ()
    """Complete steps, newest first; empty also for a tier with source API."""
    error: str = ""
    other: Recognised | None = None
    """What the directory looks like, if it has no step of the tier's layout."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid manifest with all that was found out about it."""

    job: GangJob
    members: tuple[ForecastMember, ...]
    commands: dict[str, Command]
    """Role -> its command on this machine; without roles that can't run here."""
    tiers: tuple[TierFound, ...]
    point: RestorePoint | None
    """What attempt 1 restores, as far as directories tell."""
    unused: tuple[Recognised, ...]
    """Checkpoints in the folder, if the manifest names no tier."""
    free_ports: int
    refused: tuple[str, ...]
    """Why it can't run on this machine."""
    ignored: tuple[str, ...]
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        job, network = self.job, self.job.spec.network
        return {
            "valid": True,
            "gang": {"name": job.metadata.name, "namespace": job.metadata.namespace},
            "processGroups": [
                {"name": one.name, "worldSize": one.world_size, "members": one.members, "master": one.master}
                for one in forecast.groups(job)
            ],
            "ports": {
                "first": network.base_port,
                "last": network.base_port + network.port_count - 1,
                "freeHere": self.free_ports,
            },
            "members": [self._member(one) for one in self.members],
            "tiers": [_tier(one) for one in self.tiers],
            "restorePoint": None if self.point is None else self.point.model_dump(mode="json", by_alias=True),
            "policy": list(forecast.policy_texts(job)),
            "local": {"runs": not self.refused, "refused": list(self.refused), "ignored": list(self.ignored)},
            "warnings": list(self.warnings),
        }

    def environment(self, member: ForecastMember) -> dict[str, str]:
        """What the template sets for the processes of a member on this machine."""
        own = self.commands.get(member.role)
        return {} if own is None else {key: value for key, value in own.environment.items() if key != PRELOAD_VARIABLE}

    def _member(self, member: ForecastMember) -> dict[str, Any]:
        own = self.commands.get(member.role)
        found: dict[str, Any] = {"name": member.name, "role": member.role, "spare": member.is_spare}
        if own is not None:
            found |= {"command": list(own.words), "directory": str(own.directory)}
        found["processes"] = [
            {"ranks": list(one.ranks), "environment": self.environment(member) | dict(one.variables)}
            for one in member.processes
        ]
        return found


def checked(job: GangJob, folder: Path) -> Checked:
    """Find out what the manifest will do if it is run from this folder."""
    refused = refusals(job, folder)
    commands = {} if refused else {role.name: _command(job, role.name, folder) for role in job.spec.roles}
    tiers = tuple(_look(tier, _base(job, commands, folder)) for tier in _tiers(job))
    point = _point(tiers)
    return Checked(
        job=job,
        members=tuple(forecast.members(job, point)),
        commands=commands,
        tiers=tiers,
        point=point,
        unused=() if tiers else tuple(disk_checkpoints.recognised(folder)),
        free_ports=_free_ports(job),
        refused=refused,
        ignored=(*ignored(job), *_ignored_beside(job)),
        warnings=tuple(_warnings(job, commands, tiers)),
    )


def _tiers(job: GangJob) -> tuple[Tier, ...]:
    return () if job.spec.checkpoint is None else job.spec.checkpoint.tiers


def _command(job: GangJob, role: str, folder: Path) -> Command:
    given = job.metadata.model_dump()
    annotations = {**given.get("annotations", {}), ANNOTATION_DIRECTORY: str(folder)}
    metadata = Metadata.model_validate({**given, "annotations": annotations})
    return command(changed(job, metadata=metadata), f"{role}-0", os.environ)


def _base(job: GangJob, commands: dict[str, Command], folder: Path) -> Path:
    """Where a relative directory begins: in the folder of a member, and any may be asked."""
    first = commands.get(job.spec.roles[0].name)
    return folder if first is None else first.directory


def _look(tier: Tier, base: Path) -> TierFound:
    if not isinstance(tier.source, DirectorySource):
        return TierFound(tier)
    try:
        found = tuple(disk_checkpoints.steps(tier.source, base))
    except (OSError, ValueError) as error:
        return TierFound(tier, error=f"{tier.source.directory} can't be read: {error}")
    directory = base / tier.source.directory
    others = [] if found else [one for one in disk_checkpoints.recognised(directory) if one.directory == directory]
    return TierFound(tier, found, other=others[0] if others else None)


def _point(tiers: tuple[TierFound, ...]) -> RestorePoint | None:
    found = [one for one in tiers if one.steps]
    if not found:
        return None
    newest = max(found, key=lambda one: one.steps[0].step)
    step, source = newest.steps[0], newest.tier.source
    directory = source.directory if isinstance(source, DirectorySource) else ""
    return RestorePoint(step=step.step, tier=newest.tier.name, path=str(Path(directory) / step.path.name))


def _free_ports(job: GangJob) -> int:
    network = job.spec.network
    return sum(_is_free(network.base_port + at) for at in range(network.port_count))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _ignored_beside(job: GangJob) -> Iterator[str]:
    images = sorted({str(image) for role in job.spec.roles if (image := (role.worker.model_extra or {}).get("image"))})
    if images:
        yield f"images have no effect in local mode: the commands run as they are on this machine ({', '.join(images)})"
    if job.spec.placement.strategy != "None":
        yield f"spec.placement {job.spec.placement.strategy} has no effect in local mode: there is one node only"
    if job.spec.gang_scheduling.type != "None":
        yield "spec.gangScheduling has no effect in local mode"


def _warnings(job: GangJob, commands: dict[str, Command], tiers: tuple[TierFound, ...]) -> Iterator[str]:
    for at, role in enumerate(job.spec.roles):
        if role.name in commands:
            container = role.template.spec.containers.index(role.worker)
            path = f"spec.roles[{at}].template.spec.containers[{container}]"
            yield from (f"{path}.{text}" for text in _of_command(commands[role.name]))
    yield from unfamiliar(job)
    yield from (text for one in tiers if (text := _of_tier(one)))


def _of_command(own: Command) -> Iterator[str]:
    """What of a command isn't on this machine. A word with ``$(`` is known only at the start."""
    program, *others = own.words
    search = {**os.environ, **own.environment}.get("PATH", os.defpath)
    path = str(own.directory / program) if "/" in program else program
    if "$(" not in program and shutil.which(path, path=search) is None:
        yield f"command: {program} is no program that is found on this machine"
    for word in others:
        if word.endswith(".py") and "$(" not in word and not (own.directory / word).exists():
            yield f"command: {own.directory / word} doesn't exist on this machine"


def _of_tier(one: TierFound) -> str:
    """What a tier's directory looks like instead, if it has no step of the tier's layout."""
    source = one.tier.source
    if one.other is None or not isinstance(source, DirectorySource):
        return ""
    expected = f"layout {source.layout} ({_named(*folder_rule(source))})"
    there = f"{one.other.layout} ({_named(one.other.pattern, one.other.complete)})"
    return f"tier {one.tier.name}: no step of {expected} is in {source.directory}; what is there looks like {there}"


def _named(pattern: str, complete: str) -> str:
    return f"{pattern} with {complete}" if complete else pattern


def _tier(one: TierFound) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.tier.name, "scope": one.tier.scope, "source": one.tier.source.type}
    if isinstance(one.tier.source, DirectorySource):
        pattern, complete = folder_rule(one.tier.source)
        found |= {
            "directory": one.tier.source.directory,
            "layout": one.tier.source.layout,
            "pattern": pattern,
            "complete": complete,
            "steps": [step.step for step in one.steps[:LISTED_STEPS]],
            "found": len(one.steps),
        }
    return found | ({"error": one.error} if one.error else {})
