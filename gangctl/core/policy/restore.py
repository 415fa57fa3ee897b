"""The restore point: which step an attempt loads, and what is missing where none is found.

The restore point: the newest checkpoint step that one tier holds complete for every rank, decided once an attempt.

The rule: steps that are begun but not completed don't exist; neither do rejected ones until they are written again, nor
steps that aren't verified (``checkpoints.py``), where the spec trusts only those. A restart rejects every step beyond
its restore point, which it undoes. Of equal steps a Member, Peers or Process tier wins, because it is nearer. A user
may ask for another step, or for the beginning, once. By itself a gang must not start from the beginning when a step was
ever complete for every rank, or when training has made steps for longer than ``RETRAINED_SECONDS`` and there is a
directory that should hold them. Before, its first checkpoint may be still to come, and a store that is away costs no
more. A step that not every rank completed is no record.

A missing step: why there should be a restore point, what was looked for, where, and what to do.

The rule: a gang that waits for a restore point, or is held for want of one, says which steps there should be and which
there are, what marks a step complete, and the commands that lead on. Held, it says who looked last. While it waits, its
members look in turn, so a name would be written anew all the time.

The older step: when a gang gives its newest checkpoint up for the one before, which a corrupt one would block.

    due = the failures in a row from this restore point, without a step beyond it, are fallbackAfter

Where no rank reports steps, an attempt that ends sooner than ``STEADY_SECONDS`` and leaves no newer checkpoint has made
none. That is a guess: it takes two at least, and costs one step back, once in a row of failures. It must cost neither a
pod nor the job, as reported steps do (``recovery.py``). Where most members could not see the restore point, it says
nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from gangctl.api.gangjob import DirectorySource, Spec, Tier
from gangctl.api.incident import Cause
from gangctl.api.reasons import Reason
from gangctl.api.status import RejectedStep, RestorePoint
from gangctl.core.facts.faults import is_missing_for_most, is_unseen_by_most, unseen_by
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.progress import highest_step
from gangctl.core.policy import checkpoints, recovery
from gangctl.core.policy.checkpoints import folder_rule
from gangctl.core.policy.recovery import failures_without_progress, has_progressed, in_a_row, is_work_over
from gangctl.words import checkpoints as words
from gangctl.words.message import Message
from gangsidecar.wire import MAX_FOUND, Scan
from gangsidecar.wire import Tier as ScanTier

# The restore point


MAX_REJECTED: Final = 4 * MAX_FOUND
"""As many as the scans of all tiers can show."""
RETRAINED_SECONDS: Final = 1800.0
"""What is trained again without asking: a person who has to look at a gang that is held takes no less."""
SCAN_SECONDS: Final = 2.0
"""A scan that wasn't answered is asked again, of another member, after this long."""


class Undecided(Enum):
    """Why there is no answer yet."""

    NOT_SCANNED = auto()
    """No member has answered the scan of this attempt."""
    NONE_FOUND = auto()
    """There should be a step, or the one that was asked for, and none is found."""
    TOO_MANY = auto()
    """The beginning was asked for, and a directory has so many steps that older ones may be hidden."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that every rank can load."""

    point: RestorePoint
    marker: str = ""
    near: bool = False
    """In a Member, Peers or Process tier."""


def wanted_scan(gang: Gang) -> Scan | None:
    """The query for the job's directories; None if it has none."""
    tiers = tuple(_scan_tier(tier) for tier in tiers_of(gang) if isinstance(tier.source, DirectorySource))
    return Scan(gang.status.attempt, tiers) if tiers else None


def has_scan(gang: Gang) -> bool:
    """Whether every directory was looked at for this attempt; after a wait by choice, which may be long, again."""
    scanned, at = gang.observed.scanned, gang.observed.scanned_at
    if wanted_scan(gang) is None:
        return True
    answered = scanned is not None and scanned.attempt == gang.status.attempt and not scanned.error
    return answered and at >= recovery.held_until(gang) - SCAN_SECONDS


def restore_point(
    gang: Gang, assignment: dict[str, str], rejected: tuple[RejectedStep, ...]
) -> Candidate | Undecided | None:
    """The checkpoint that every rank of the coming attempt loads; None = it starts from the beginning."""
    asked = gang.status.restart_from
    if gang.spec.checkpoint is None and (asked is None or asked.step is None):
        return None
    if not has_scan(gang):
        return Undecided.NOT_SCANNED
    if asked is not None:
        return _asked(gang, assignment, asked.step)
    found = candidates(gang, assignment, rejected)
    if found:
        return found[0]
    return Undecided.NONE_FOUND if recorded_point(gang) is not None or steps_made(gang) is not None else None


def may_have_saved(gang: Gang, assignment: dict[str, str]) -> bool:
    """Whether the failed attempt left a checkpoint beyond what it had restored, or that isn't known yet.

    A checkpoint that a user asks for says nothing about it.
    """
    before, asked = gang.status.restore_point, gang.status.restart_from
    if gang.spec.checkpoint is None or asked is not None or is_missing_for_most(gang):
        return False
    if not has_scan(gang):
        return True
    found = complete_steps(gang, assignment, gang.status.rejected_steps)
    return bool(found) and (before is None or found[0].point.step > before.step)


def candidates(gang: Gang, assignment: dict[str, str], rejected: tuple[RejectedStep, ...]) -> tuple[Candidate, ...]:
    """Every step that every rank can load and that the spec trusts, best first."""
    found = complete_steps(gang, assignment, rejected)
    if gang.spec.checkpoint is None or gang.spec.checkpoint.restore.trust == "Any":
        return found
    verified, until = {one.step for one in checkpoints.verified_steps(gang)}, checkpoints.verified_until(gang)
    return tuple(one for one in found if one.point.step in verified or one.point.step <= until)


def complete_steps(gang: Gang, assignment: dict[str, str], rejected: tuple[RejectedStep, ...]) -> tuple[Candidate, ...]:
    """Every step that every rank can load, verified or not, best first."""
    out = {(entry.tier, entry.step, entry.marker) for entry in rejected}
    found = [
        candidate
        for tier in tiers_of(gang)
        for candidate in _in_tier(gang, tier, assignment)
        if (tier.name, candidate.point.step, candidate.marker) not in out
    ]
    return tuple(sorted(found, key=lambda one: (-one.point.step, not one.near)))


def rejections(
    gang: Gang, assignment: dict[str, str], step: int, rejected: tuple[RejectedStep, ...]
) -> tuple[RejectedStep, ...]:
    """``rejected`` with every copy of ``step`` and of what is newer added."""
    more = [
        RejectedStep(tier=one.point.tier, step=one.point.step, marker=one.marker)
        for one in complete_steps(gang, assignment, rejected)
        if one.point.step >= step
    ]
    return highest_steps((*rejected, *more), MAX_REJECTED)


def highest_steps(rejected: tuple[RejectedStep, ...], count: int) -> tuple[RejectedStep, ...]:
    """The highest of them, in their order: the newest step that isn't rejected is tried first, so low steps go."""
    if len(rejected) <= count:
        return rejected
    steps = sorted(range(len(rejected)), key=lambda at: (rejected[at].step, at))
    return tuple(rejected[at] for at in sorted(steps[-count:]))


def on_request(
    gang: Gang, assignment: dict[str, str], asked: int | None, rejected: tuple[RejectedStep, ...]
) -> tuple[RejectedStep, ...]:
    """``rejected`` after a user has asked for a step (None: the beginning): it is used again, what is newer is not."""
    kept = tuple(entry for entry in rejected if entry.step != asked)
    return rejections(gang, assignment, 0 if asked is None else asked + 1, kept)


def recorded_point(gang: Gang) -> RestorePoint | None:
    """A step that was once complete for every rank; None if no step ever was, but in the memory of processes."""
    status, kept = gang.status, tier_with(gang.spec, "Process")
    entry = checkpoints.remember_steps(gang, status).completed_step or next(iter(status.recorded_steps), None)
    if entry is not None:
        return RestorePoint(step=entry.step, tier=entry.tier)
    point = status.restore_point
    return None if point is None or (kept is not None and point.tier == kept.name) else point


def steps_made(gang: Gang) -> int | None:
    """The step that training has reached since its beginning; None if it made none, or no directory should hold any."""
    if wanted_scan(gang) is None:
        return None
    began = checkpoints.line_began_at(gang.status.lineage)
    last, stored = highest_step(gang, gang.status.started_attempt), gang.status.progress
    made = [one.step for one in (last, stored) if one is not None and one.attempt >= began]
    return max(made, default=0) or None


def begins_anew(gang: Gang, ended: float) -> bool:
    """Whether a gang that has made steps starts from the beginning: nothing is on record, and little is lost.

    Two members at least have looked for its checkpoints by then. ``ended``: when the attempt that ran last did.
    """
    status, asked = gang.status, gang.status.restart_from
    first, last = status.first_step, highest_step(gang, status.started_attempt)
    if asked is not None or recorded_point(gang) is not None or last is None or first is None:
        return False
    trained = max(ended, last.time) - first.time
    is_little = first.attempt == last.attempt and 0 <= trained <= RETRAINED_SECONDS
    return is_little and gang.now >= recovery.granted_until(gang) + 2 * SCAN_SECONDS


def tiers_of(gang: Gang) -> tuple[Tier, ...]:
    """The checkpoint tiers of the job."""
    return () if gang.spec.checkpoint is None else gang.spec.checkpoint.tiers


def tier_with(spec: Spec, scope: Literal["Peers", "Process"]) -> Tier | None:
    """The tier with this scope, of which a job has one at most."""
    tiers = () if spec.checkpoint is None else spec.checkpoint.tiers
    return next((tier for tier in tiers if tier.scope == scope), None)


def _asked(gang: Gang, assignment: dict[str, str], step: int | None) -> Candidate | Undecided | None:
    """What a user has asked for, also if it was rejected before."""
    found = complete_steps(gang, assignment, ())
    if step is not None:
        return next((one for one in found if one.point.step == step), Undecided.NONE_FOUND)
    return Undecided.TOO_MANY if hides_steps(gang) else None


def hides_steps(gang: Gang) -> tuple[str, ...]:
    """The tiers whose directories may have more steps than a scan shows."""
    scanned = gang.observed.scanned
    found = [one.tier for one in (() if scanned is None else scanned.found)]
    return tuple(tier.name for tier in tiers_of(gang) if found.count(tier.name) >= MAX_FOUND)


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
    if tier.scope != "Shared":
        return [
            Candidate(RestorePoint(step=entry.step, tier=tier.name), entry.marker, near=True)
            for entry in checkpoints.of_every_member(gang, tier, assignment)
        ]
    return [
        Candidate(RestorePoint(step=entry.step, tier=tier.name, path=entry.path), entry.marker)
        for entry in checkpoints.of_all_ranks(gang, tier)
    ]


# A missing step


def expected_step(gang: Gang) -> Message:
    """Return why the gang does not start from the beginning."""
    asked, entry = gang.status.restart_from, recorded_point(gang)
    if asked is not None:
        return words.beginning_requested() if asked.step is None else words.step_requested(asked.step)
    if entry is not None:
        return words.step_was_complete(entry.step, entry.tier)
    return words.training_reached(steps_made(gang))


def steps_found(
    gang: Gang, assignment: Mapping[str, str], rejected: tuple[RejectedStep, ...], *, hidden: bool = False
) -> Message:
    """Return what was looked for in each tier, where, and what is there.

    Args:
        gang: the gang.
        assignment: place -> ready member.
        rejected: the steps that don't exist any more, those of this decision among them.
        hidden: whether a directory has too many steps.
    """
    if not tiers_of(gang):
        return words.no_tiers()
    full = hides_steps(gang) if hidden else ()
    tiers = [
        words.tier_is_full(tier.name, MAX_FOUND)
        if tier.name in full
        else _in_tier_of_missing_step(gang, tier, assignment, rejected)
        for tier in tiers_of(gang)
        if not full or tier.name in full
    ]
    return words.tiers_have(tiers)


def _in_tier_of_missing_step(
    gang: Gang, tier: Tier, assignment: Mapping[str, str], rejected: tuple[RejectedStep, ...]
) -> Message:
    there, left, usable = (
        {one.point.step for one in found if one.point.tier == tier.name}
        for found in (
            complete_steps(gang, dict(assignment), ()),
            complete_steps(gang, dict(assignment), rejected),
            candidates(gang, dict(assignment), rejected),
        )
    )
    unusable = sorted(there - left, reverse=True)
    point, members = gang.status.restore_point, frozenset(report.member for report in unseen_by(gang))
    unseen = [name for name in gang.members if name in members] if point is not None and point.step in unusable else []
    return words.tier_has(
        tier.name,
        sorted(usable, reverse=True),
        unusable,
        _looked_for(tier),
        unseen,
        0 if point is None else point.step,
        sorted(left - usable, reverse=True),
    )


def _looked_for(tier: Tier) -> Message:
    source = tier.source
    if not isinstance(source, DirectorySource):
        return words.registrations_looked_for(str(tier.scope))
    folder, complete = folder_rule(source)
    return words.folders_looked_for(folder, source.directory, complete or "")


def looked_last(gang: Gang) -> str:
    """Return the member that has answered the newest scan; empty if there is none, or its pod is gone."""
    scanned = gang.observed.scanned
    pod = None if scanned is None else scanned.pod
    return next((one.member for one in gang.observed.pods if one.uid == pod), "")


# The older step


GUESSED: Final = 2
"""One short attempt without a checkpoint says nothing of a step."""


def is_older_step_due(gang: Gang, cause: Cause, newest: RestorePoint) -> bool:
    """Whether this failure is the one after which an older step is tried; that step gets as many chances.

    Args:
        gang: it had a restore point.
        cause: of the failure, which is charged.
        newest: the newest step that every rank can load now.
    """
    checkpoint = gang.spec.checkpoint
    if checkpoint is None or cause.reason == Reason.CHECK_FAILED:
        return False
    if has_progressed(gang) is None and not is_unseen_by_most(gang):
        return _unreported(gang, cause, newest) == max(checkpoint.fallback_after, GUESSED)
    return failures_without_progress(gang) == checkpoint.fallback_after


def _unreported(gang: Gang, cause: Cause, newest: RestorePoint) -> int:
    """Failures in a row, this one included, that seem to have made no step; 0 if that isn't known, or was acted on."""
    point = gang.status.restore_point
    if point is None or newest.step > point.step or is_work_over(gang):
        return 0
    counted, row = 1, in_a_row(gang, cause) - 1
    for entry in reversed(gang.status.ledger):
        if row <= 0 or entry.progressed is not None:
            break
        if entry.restored_step != point.step:
            return 0
        counted += entry.charged
        row -= entry.failure  # Disruptions lie between the failures of a row.
    else:
        return 0 if row > 0 else counted  # Where the begin of the row is forgotten, so is whether a step was given up.
    return counted
