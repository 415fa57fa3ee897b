"""The restore point: the newest checkpoint step that one tier holds complete for every rank, decided once an attempt.

The rule: begun but not completed steps don't exist; neither do rejected ones until they are written again. Of equal
steps a Member tier wins, being nearer. Never does a gang that has ever recorded a step start silently from the
beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from gangctl.api.gangjob import ApiSource, DirectorySource, Tier
from gangctl.api.status import RejectedStep, RestorePoint
from gangctl.core.gang import Gang
from gangctl.core.launch import Numbering
from gangctl.core.layouts import folder_rule
from gangsidecar.wire import Checkpoint, Scan
from gangsidecar.wire import Tier as ScanTier


class Unknown(Enum):
    """Why there is no answer yet."""

    NOT_SCANNED = auto()
    """No member has answered the scan of this attempt."""
    NONE_FOUND = auto()
    """A step was recorded once, and now none is found: look again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that every rank can load."""

    point: RestorePoint
    marker: str = ""
    near: bool = False
    """In a Member tier."""


def wanted_scan(gang: Gang) -> Scan | None:
    """The query for the job's directories; None if it has none."""
    tiers = tuple(_scan_tier(tier) for tier in _tiers(gang) if isinstance(tier.source, DirectorySource))
    return Scan(gang.status.attempt, tiers) if tiers else None


def has_scan(gang: Gang) -> bool:
    """Whether every directory was looked at for this attempt."""
    scanned = gang.observed.scanned
    return wanted_scan(gang) is None or (
        scanned is not None and scanned.attempt == gang.status.attempt and not scanned.error
    )


def restore_point(
    gang: Gang, assignment: dict[str, str], rejected: tuple[RejectedStep, ...]
) -> Candidate | Unknown | None:
    """What every rank of the coming attempt loads; None = from the beginning, and that is right."""
    if gang.spec.checkpoint is None:
        return None
    if not has_scan(gang):
        return Unknown.NOT_SCANNED
    found = candidates(gang, assignment, rejected)
    if found:
        return found[0]
    recorded = gang.status.restore_point is not None or any(heard.report.checkpoints for heard in gang.observed.heard)
    return Unknown.NONE_FOUND if recorded else None


def candidates(gang: Gang, assignment: dict[str, str], rejected: tuple[RejectedStep, ...]) -> tuple[Candidate, ...]:
    """Every step that every rank can load, best first."""
    out = {(entry.tier, entry.step, entry.marker) for entry in rejected}
    found = [
        candidate
        for tier in _tiers(gang)
        for candidate in _in_tier(gang, tier, assignment)
        if (tier.name, candidate.point.step, candidate.marker) not in out
    ]
    return tuple(sorted(found, key=lambda one: (-one.point.step, not one.near)))


def rejections(gang: Gang, step: int, rejected: tuple[RejectedStep, ...]) -> tuple[RejectedStep, ...]:
    """``rejected`` with every known copy of ``step`` and of what is newer added, newest 32 kept."""
    known = {(entry.tier, entry.step, entry.marker): entry for entry in rejected}
    scanned = gang.observed.scanned
    for found in () if scanned is None else scanned.found:
        if found.step >= step:
            known[found.tier, found.step, found.marker] = RejectedStep(
                tier=found.tier, step=found.step, marker=found.marker
            )
    for tier in _tiers(gang):
        if isinstance(tier.source, ApiSource):
            for entry in _registered(gang, tier):
                if entry.step >= step:
                    marker = _api_marker(entry)
                    known[tier.name, entry.step, marker] = RejectedStep(tier=tier.name, step=entry.step, marker=marker)
    return tuple(list(known.values())[-32:])


def _tiers(gang: Gang) -> tuple[Tier, ...]:
    return () if gang.spec.checkpoint is None else gang.spec.checkpoint.tiers


def _scan_tier(tier: Tier) -> ScanTier:
    source = tier.source
    if not isinstance(source, DirectorySource):
        raise TypeError(tier.name)
    return ScanTier(tier.name, source.directory, *folder_rule(source))


def _in_tier(gang: Gang, tier: Tier, assignment: dict[str, str]) -> list[Candidate]:
    if isinstance(tier.source, DirectorySource):
        scanned = gang.observed.scanned
        return [
            Candidate(RestorePoint(step=found.step, tier=tier.name, path=found.path), found.marker)
            for found in (() if scanned is None else scanned.found)
            if found.tier == tier.name
        ]
    numbering = Numbering(gang.spec)
    needed = {
        (member, group, rank)
        for place, member in assignment.items()
        if (group := gang.places[place].role.group)
        for rank in numbering.ranks[place]
    }
    own = tier.scope == "Member"
    holding: dict[int, set[tuple[str, str, int]]] = {}
    marker: dict[int, str] = {}
    paths: dict[int, str] = {}
    for member in dict.fromkeys(assignment.values()):
        report = gang.report(member)
        for entry in () if report is None else report.checkpoints:
            if entry.tier == tier.name:
                group = gang.members[member].role.group
                holding.setdefault(entry.step, set()).add((member if own else "", group, entry.rank))
                marker[entry.step] = max(marker.get(entry.step, ""), _api_marker(entry))
                paths[entry.step] = entry.path
    wanted = needed if own else {("", group, rank) for _, group, rank in needed}
    return [
        Candidate(RestorePoint(step=step, tier=tier.name, path="" if own else paths[step]), marker[step], near=own)
        for step, having in holding.items()
        if wanted and wanted <= having
    ]


def _registered(gang: Gang, tier: Tier) -> list[Checkpoint]:
    return [entry for heard in gang.observed.heard for entry in heard.report.checkpoints if entry.tier == tier.name]


def _api_marker(entry: Checkpoint) -> str:
    return f"attempt-{entry.attempt}"
