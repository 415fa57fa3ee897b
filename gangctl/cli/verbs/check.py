"""``gangctl check``: show what a manifest will do, by the core, the folder it would run in, and this machine."""

import argparse
import os
import shlex
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gangctl.api.gangjob import DirectorySource, GangJob, Metadata, Tier
from gangctl.api.manifest import ManifestError, load_gangjobs
from gangctl.api.model import changed
from gangctl.api.names import parse_member_name
from gangctl.api.problems import Problem
from gangctl.api.status import RestorePoint
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.local import disk_checkpoints
from gangctl.cli.local.disk_checkpoints import CheckpointFolder, Step
from gangctl.cli.manifests import configure_overrides, manifest_text, shown_name, unknown_field_texts
from gangctl.cli.printers.output import as_json, print_out
from gangctl.cli.printers.text import clean
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.injection import as_mappings, refuse_reserved
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY
from gangctl.cluster.local.programs import Command, command, ignored_fields, run_obstacles
from gangctl.core.policy.checkpoints import folder_rule
from gangctl.explain import forecast
from gangctl.explain.forecast import ForecastMember
from gangctl.words.text import counted
from gangsidecar.wire import PRELOAD_VARIABLE

_LISTED_STEPS: Final = 5
_MOST_MEMBERS: Final = 12
"""Lines of members; of larger gangs only some are shown."""
_MORE: Final = (
    "GANG_SOCKET, GANG_POD_UID and GANG_TERMINATION_LOG, the folder of gangclient in PYTHONPATH, and folders for "
    "compilers' caches"
)
_EPILOG: Final = """\
examples:
  gangctl check job.yaml
  gangctl check job.yaml --set 'spec.roles[0].replicas=8'
  gangctl check job.yaml --member worker-3      the variables of another member
  gangctl check job.yaml -o json | jq '.members[0].processes[0].environment'

Nothing is started or written. Directories of checkpoints are looked up from the current folder, as gangctl run does.

exit codes: 0 valid, 1 valid but gangctl run can't run it on this machine, or a cluster can't, 2 invalid
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Show what a manifest will do: members and ranks, the variables of each process, ports, the restore point that is found
in this folder, what happens after faults, and what gangctl run ignores on this machine. All that is wrong with it is
shown at once, with its line and field."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="manifest of a GangJob; - reads stdin")
    configure_overrides(parser)
    parser.add_argument(
        "--member", metavar="M", help="show the variables of this member (default: the first of each role)"
    )
    parser.add_argument(
        "-o", "--output", choices=["json"], help="print JSON for programs: an object, or a list for several gangs"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the manifest will do."""
    name = arguments.file
    content = manifest_text(name)
    try:
        jobs = load_gangjobs(content, shown_name(name), arguments.overrides)
    except ManifestError as error:
        if arguments.output != "json":
            raise UserError(str(error)) from None
        print_out(as_json({"valid": False, "problems": [_problem(one) for one in error.problems]}))
        return ExitCode.BAD_INPUT
    checked = [_checked(job, Path.cwd()) for job in jobs]
    for found in checked:
        names = [one.name for one in found.members]
        if arguments.member is not None and arguments.member not in names:
            raise UserError(f"--member: there is no member {arguments.member!r}; there are {names[0]} to {names[-1]}")
    if arguments.output == "json":
        documents = [found.document() for found in checked]
        print_out(as_json(documents[0] if len(documents) == 1 else documents))
    else:
        texts = ["\n".join(map(clean, _lines(found, arguments.member, shown_name(name)))) for found in checked]
        print_out("\n\n".join(texts))
    return ExitCode.FAILED if any(found.refused or found.refused_by_clusters for found in checked) else ExitCode.OK


def _problem(one: Problem) -> dict[str, Any]:
    fields = {"path": one.path, "line": one.line, "found": one.found, "expected": one.expected, "why": one.why}
    return {name: value for name, value in fields.items() if value not in {None, ""}}


@dataclass(frozen=True, slots=True)
class _TierFound:
    """A tier, and what is in its directory now."""

    tier: Tier
    steps: tuple[Step, ...] = ()
    """Complete steps, newest first; empty also for a tier with source API."""
    error: str = ""
    other: CheckpointFolder | None = None
    """The checkpoints that the directory has instead, if it has no step of the tier's layout."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A valid manifest with all that was found out about it."""

    job: GangJob
    members: tuple[ForecastMember, ...]
    commands: dict[str, Command]
    """Role -> its command on this machine; without roles that can't run here."""
    tiers: tuple[_TierFound, ...]
    point: RestorePoint | None
    """The point that attempt 1 restores, as far as directories show."""
    unused: tuple[CheckpointFolder, ...]
    """Checkpoints in the folder, if the manifest names no tier."""
    free_ports: int
    refused: tuple[str, ...]
    """Why it can't run on this machine."""
    refused_by_clusters: tuple[str, ...]
    """Why no controller on a cluster can create its pods."""
    ignored: tuple[str, ...]
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The document for programs."""
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
            "tiers": [_tier_document(one) for one in self.tiers],
            "restorePoint": None if self.point is None else self.point.model_dump(mode="json", by_alias=True),
            "policy": list(forecast.policy_texts(job)),
            "local": {"runs": not self.refused, "refused": list(self.refused), "ignored": list(self.ignored)},
            "cluster": {"runs": not self.refused_by_clusters, "refused": list(self.refused_by_clusters)},
            "warnings": list(self.warnings),
        }

    def environment(self, member: ForecastMember) -> dict[str, str]:
        """The variables that the template sets for the processes of a member on this machine."""
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


def _checked(job: GangJob, folder: Path) -> _Checked:
    """Find out what the manifest will do if it is run from this folder."""
    obstacles = run_obstacles(job, folder)
    commands = {} if obstacles else {role.name: _command(job, role.name, folder) for role in job.spec.roles}
    first = commands.get(job.spec.roles[0].name)
    base = folder if first is None else first.directory  # of relative directories: any member may be asked
    given = () if job.spec.checkpoint is None else job.spec.checkpoint.tiers
    tiers = tuple(_look(tier, base) for tier in given)
    point = _point(tiers)
    network = job.spec.network
    free = sum(_is_free(network.base_port + at) for at in range(network.port_count))
    no_port = () if free else ("no port of spec.network is free: an attempt could not start; set another basePort",)
    return _Checked(
        job=job,
        members=tuple(forecast.forecast_members(job, point)),
        commands=commands,
        tiers=tiers,
        point=point,
        unused=() if tiers else tuple(disk_checkpoints.checkpoint_folders(folder)),
        free_ports=free,
        refused=(*obstacles, *_without_program(job, commands), *no_port),
        refused_by_clusters=tuple(_reserved(job)),
        ignored=(*ignored_fields(job), *_ignored_beside(job)),
        warnings=tuple(_warnings(job, commands, tiers)),
    )


def _command(job: GangJob, role: str, folder: Path) -> Command:
    given = job.metadata.model_dump()
    annotations = {**given.get("annotations", {}), ANNOTATION_DIRECTORY: str(folder)}
    metadata = Metadata.model_validate({**given, "annotations": annotations})
    return command(changed(job, metadata=metadata), f"{role}-0", os.environ)


def _look(tier: Tier, base: Path) -> _TierFound:
    if not isinstance(tier.source, DirectorySource):
        return _TierFound(tier)
    try:
        found = tuple(disk_checkpoints.complete_steps(tier.source, base))
    except (OSError, ValueError) as error:
        return _TierFound(tier, error=f"{tier.source.directory} can't be read: {error}")
    directory = base / tier.source.directory
    others = (
        [] if found else [one for one in disk_checkpoints.checkpoint_folders(directory) if one.directory == directory]
    )
    return _TierFound(tier, found, other=others[0] if others else None)


def _point(tiers: tuple[_TierFound, ...]) -> RestorePoint | None:
    found = [one for one in tiers if one.steps]
    if not found:
        return None
    newest = max(found, key=lambda one: one.steps[0].step)
    step, source = newest.steps[0], newest.tier.source
    directory = source.directory if isinstance(source, DirectorySource) else ""
    return RestorePoint(step=step.step, tier=newest.tier.name, path=str(Path(directory) / step.path.name))


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


def _reserved(job: GangJob) -> Iterator[str]:
    """The fields by which the controller of a cluster refuses the templates."""
    for at, role in enumerate(job.spec.roles):
        path, written = f"spec.roles[{at}].template.spec", role.template.written["spec"]
        keys = ("initContainers", "containers", "volumes")
        try:
            entries = {key: as_mappings(written.get(key), f"{path}.{key}") for key in keys}
            refuse_reserved(entries, role.template.spec.containers.index(role.worker), path)
        except Terminal as error:
            yield str(error)


def _warnings(job: GangJob, commands: dict[str, Command], tiers: tuple[_TierFound, ...]) -> Iterator[str]:
    for path, own in _commands_at(job, commands):
        for word in own.words[1:]:
            if word.endswith(".py") and "$(" not in word and not (own.directory / word).exists():
                yield f"{path}: {own.directory / word} doesn't exist on this machine"
    yield from unknown_field_texts(job)
    yield from (text for one in tiers if (text := _of_tier(one)))


def _without_program(job: GangJob, commands: dict[str, Command]) -> Iterator[str]:
    """The commands whose program this machine lacks."""
    for path, own in _commands_at(job, commands):
        program = own.words[0]
        search = {**os.environ, **own.environment}.get("PATH", os.defpath)
        place = str(own.directory / program) if "/" in program else program
        if "$(" not in program and shutil.which(place, path=search) is None:
            yield f"{path}: {program} isn't a program of this machine"


def _commands_at(job: GangJob, commands: dict[str, Command]) -> Iterator[tuple[str, Command]]:
    """Each command with its path. A word with ``$(`` has its value only at the start."""
    for at, role in enumerate(job.spec.roles):
        if role.name in commands:
            container = role.template.spec.containers.index(role.worker)
            yield f"spec.roles[{at}].template.spec.containers[{container}].command", commands[role.name]


def _of_tier(one: _TierFound) -> str:
    """A warning if a tier's directory has checkpoints of another layout only."""
    source = one.tier.source
    if one.other is None or not isinstance(source, DirectorySource):
        return ""
    expected = f"layout {source.layout} ({_named(*folder_rule(source))})"
    there = f"{one.other.layout} ({_named(one.other.pattern, one.other.complete)})"
    return f"tier {one.tier.name}: no step of {expected} is in {source.directory}; what is there looks like {there}"


def _named(pattern: str, complete: str) -> str:
    return f"{pattern} with {complete}" if complete else pattern


def _tier_document(one: _TierFound) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.tier.name, "scope": one.tier.scope, "source": one.tier.source.type}
    if isinstance(one.tier.source, DirectorySource):
        pattern, complete = folder_rule(one.tier.source)
        found |= {
            "directory": one.tier.source.directory,
            "layout": one.tier.source.layout,
            "pattern": pattern,
            "complete": complete,
            "steps": [step.step for step in one.steps[:_LISTED_STEPS]],
            "found": len(one.steps),
        }
    return found | ({"error": one.error} if one.error else {})


def _lines(found: _Checked, member: str | None, filename: str) -> Iterator[str]:
    """All lines. ``member``: whose variables are shown; None: of the first of each role."""
    yield f"{filename}: GangJob {found.job.metadata.name} is valid"
    for title, section in (
        ("members", list(_members(found))),
        ("process groups", list(_groups(found))),
        ("variables", list(_variables(found, member))),
        ("checkpoints", list(_checkpoints(found))),
        ("after a fault", list(forecast.policy_texts(found.job))),
        ("on this machine", list(_here(found))),
        ("on a cluster", list(_on_clusters(found))),
        ("look at this", list(found.warnings)),
    ):
        if section:
            yield ""
            yield f"{title}:"
            yield from (f"  {line}" for line in section)


def _members(found: _Checked) -> Iterator[str]:
    width = max(len(one.name) for one in found.members)
    shown: Sequence[ForecastMember] = found.members
    if len(shown) > _MOST_MEMBERS:
        shown = (*shown[: _MOST_MEMBERS - 1], shown[-1])  # the last: ranks are counted on
    for one in shown:
        yield f"{one.name:<{width}}  {_ranks(one)}"
    if len(shown) < len(found.members):
        yield f"... {len(found.members)} in all"
    for role, own in found.commands.items():
        yield f"each member of {role} runs: {shlex.join(own.words)}  (in {own.directory})"


def _ranks(one: ForecastMember) -> str:
    if one.is_spare:
        return "a spare: it takes the rank of a member whose pod is lost"
    ranks = [rank for process in one.processes for rank in process.ranks]
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    how = "the command starts them itself" if len(one.processes) == 1 else "one process each"
    return f"ranks {ranks[0]} to {ranks[-1]} ({how})"


def _groups(found: _Checked) -> Iterator[str]:
    network = found.job.spec.network
    for one in forecast.groups(found.job):
        yield f"{one.name}: {counted(one.world_size, 'rank')} on {counted(one.members, 'member')}, master {one.master}"
    last = network.base_port + network.port_count - 1
    yield f"port: one of {network.base_port} to {last}, another in each attempt; {found.free_ports} are free here"


def _variables(found: _Checked, member: str | None) -> Iterator[str]:
    seen: set[str] = set()
    for one in found.members:
        if member is not None and one.name != member:
            continue
        if member is None and (one.role in seen or one.is_spare):
            continue
        seen.add(one.role)
        if one.is_spare:
            yield f"{one.name}: none until it takes a rank; then those of the member that it stands for"
        for at, process in enumerate(one.processes):
            number = f", process {at} of {len(one.processes)}" if len(one.processes) > 1 else ""
            yield f"{one.name}{number}:"
            given = {**found.environment(one), **dict(process.variables)}
            yield from (f"  {name}={value}" for name, value in given.items())
    yield f"each process also gets {_MORE}"
    first = parse_member_name(found.members[0].name)[0]
    if member is None and len(found.members) > len(seen):
        yield f"other members differ in rank and name: --member {first}-1 shows them"


def _checkpoints(found: _Checked) -> Iterator[str]:
    if not found.tiers:
        yield "none in the manifest: the script itself loads what it finds, and gangctl can't tell what a fault cost"
        for one in found.unused:
            marked = f" with {one.complete}" if one.complete else ""
            newest = f", newest step {one.newest.step}" if one.newest is not None else ""
            yield f"found in {one.directory}: {one.layout} ({one.pattern}{marked}){newest}; gangctl init writes a tier"
        return
    for tier in found.tiers:
        yield from _tier(tier)
    if found.point is not None:
        yield f"attempt 1 restores step {found.point.step} of tier {found.point.tier}: {found.point.path}"
    elif any(isinstance(one.tier.source, DirectorySource) for one in found.tiers):
        yield "attempt 1 starts from the beginning: no complete step is found"


def _tier(found: _TierFound) -> Iterator[str]:
    tier, source = found.tier, found.tier.source
    if not isinstance(source, DirectorySource):
        yield f"{tier.name} ({tier.scope}): ranks register their checkpoints; what there is shows at the start"
        return
    pattern, complete = folder_rule(source)
    what = f"{pattern}/{complete}" if complete else pattern
    yield f"{tier.name} ({tier.scope}): {source.directory}, layout {source.layout}, a step is complete with {what}"
    if found.error:
        yield f"  {found.error}"
    elif found.steps:
        steps = [str(one.step) for one in found.steps[:_LISTED_STEPS]] + ["..."] * (len(found.steps) > _LISTED_STEPS)
        yield f"  {counted(len(found.steps), 'complete step')} found: {', '.join(steps)}"


def _here(found: _Checked) -> Iterator[str]:
    if found.refused:
        yield "gangctl run can't run it:"
        yield from (f"  {text}" for text in found.refused)
    else:
        yield "gangctl run can run it"
    yield from found.ignored


def _on_clusters(found: _Checked) -> Iterator[str]:
    if found.refused_by_clusters:
        yield "the controller can't create its pods:"
        yield from (f"  {text}" for text in found.refused_by_clusters)
