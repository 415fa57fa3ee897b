"""What was found out about a manifest, as lines for a reader."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from gangctl.api.gangjob import DirectorySource
from gangctl.api.names import parse_member_name
from gangctl.cli.checking.checked import LISTED_STEPS, Checked, TierFound
from gangctl.core.policy.checkpoints import folder_rule
from gangctl.explain import forecast
from gangctl.explain.forecast import ForecastMember
from gangctl.words.text import counted

MOST_MEMBERS: Final = 12
"""Lines of members; of larger gangs only some are shown."""
_MORE: Final = (
    "GANG_SOCKET, GANG_POD_UID and GANG_TERMINATION_LOG, the folder of gangclient in PYTHONPATH, and folders for "
    "compilers' caches"
)


def lines(found: Checked, member: str | None, filename: str) -> Iterator[str]:
    """All lines. ``member``: whose variables are shown; None: of the first of each role."""
    yield f"{filename}: GangJob {found.job.metadata.name} is valid"
    for title, section in (
        ("members", list(_members(found))),
        ("process groups", list(_groups(found))),
        ("variables", list(_variables(found, member))),
        ("checkpoints", list(_checkpoints(found))),
        ("after a fault", list(forecast.policy_texts(found.job))),
        ("on this machine", list(_here(found))),
        ("look at this", list(found.warnings)),
    ):
        if section:
            yield ""
            yield f"{title}:"
            yield from (f"  {line}" for line in section)


def _members(found: Checked) -> Iterator[str]:
    width = max(len(one.name) for one in found.members)
    shown = _some(found.members)
    for one in shown:
        yield f"{one.name:<{width}}  {_ranks(one)}"
    if len(shown) < len(found.members):
        yield f"... {len(found.members)} in all"
    for role, command in found.commands.items():
        yield f"each member of {role} runs: {shlex.join(command.words)}  (in {command.directory})"


def _some(members: Sequence[ForecastMember]) -> list[ForecastMember]:
    """The first of them, and the last: ranks are counted on."""
    return list(members) if len(members) <= MOST_MEMBERS else [*members[: MOST_MEMBERS - 1], members[-1]]


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


def _groups(found: Checked) -> Iterator[str]:
    network = found.job.spec.network
    for one in forecast.groups(found.job):
        yield f"{one.name}: {counted(one.world_size, 'rank')} on {counted(one.members, 'member')}, master {one.master}"
    last = network.base_port + network.port_count - 1
    yield f"port: one of {network.base_port} to {last}, another in each attempt; {found.free_ports} are free here"


def _variables(found: Checked, member: str | None) -> Iterator[str]:
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


def _checkpoints(found: Checked) -> Iterator[str]:
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


def _tier(found: TierFound) -> Iterator[str]:
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
        steps = [str(one.step) for one in found.steps[:LISTED_STEPS]] + ["..."] * (len(found.steps) > LISTED_STEPS)
        yield f"  {counted(len(found.steps), 'complete step')} found: {', '.join(steps)}"


def _here(found: Checked) -> Iterator[str]:
    if found.refused:
        yield "gangctl run can't run it:"
        yield from (f"  {text}" for text in found.refused)
    else:
        yield "gangctl run can run it"
    yield from found.ignored
    if not found.free_ports:
        yield "no port of spec.network is free here: an attempt could not start; set another basePort"
