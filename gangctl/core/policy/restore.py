"""The restore point: the newest checkpoint step that one tier holds complete for every rank, decided once an attempt.

The rule: steps that are begun but not completed don't exist; neither do rejected ones until they are written again. Of
equal steps a Member tier wins, because it is nearer. A gang that has ever recorded a step must not start from the
beginning by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from gangctl.api.gangjob import DirectorySource, Tier
from gangctl.api.status import RejectedStep, RestorePoint
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import checkpoints
from gangctl.core.policy.layouts import folder_rule
from gangsidecar.wire import Scan
from gangsidecar.wire import Tier as ScanTier


class Undecided(Enum):
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
) -> Candidate | Undecided | None:
    """The checkpoint that every rank of the coming attempt loads; None = it starts from the beginning."""
    if gang.spec.checkpoint is None:
        return None
    if not has_scan(gang):
        return Undecided.NOT_SCANNED
    found = candidates(gang, assignment, rejected)
    if found:
        return found[0]
    recorded = bool(gang.status.restore_point or gang.status.recorded_steps) or any(
        heard.report.checkpoints for heard in gang.observed.heard
    )
    return Undecided.NONE_FOUND if recorded else None


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


def rejections(
    gang: Gang, assignment: dict[str, str], step: int, rejected: tuple[RejectedStep, ...]
) -> tuple[RejectedStep, ...]:
    """``rejected`` with every copy of ``step`` and of what is newer added, newest 32 kept."""
    more = [
        RejectedStep(tier=one.point.tier, step=one.point.step, marker=one.marker)
        for one in candidates(gang, assignment, rejected)
        if one.point.step >= step
    ]
    return (*rejected, *more)[-32:]


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
    if tier.scope == "Member":
        return [
            Candidate(RestorePoint(step=entry.step, tier=tier.name), entry.marker, near=True)
            for entry in checkpoints.of_every_member(gang, tier, assignment)
        ]
    return [
        Candidate(RestorePoint(step=entry.step, tier=tier.name, path=entry.path), entry.marker)
        for entry in checkpoints.of_all_ranks(gang, tier)
    ]
