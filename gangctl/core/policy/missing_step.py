"""A missing step: why there should be a restore point, what was looked for, where, and what to do.

The rule: a gang that waits for a restore point, or is held for want of one, says which steps there should be and which
there are, what marks a step complete, who looked, and the commands that lead on.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangctl.api.checkpoint_status import RejectedStep
from gangctl.api.gangjob import DirectorySource, Tier
from gangctl.core.facts.faults import unseen_by
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import restore
from gangctl.core.policy.layouts import folder_rule
from gangctl.words import checkpoints as words
from gangctl.words.message import Message
from gangsidecar.wire import MAX_FOUND


def expected(gang: Gang) -> Message:
    """Return why the gang does not start from the beginning."""
    asked, entry = gang.status.restart_from, restore.recorded(gang)
    if asked is not None:
        return words.beginning_requested() if asked.step is None else words.step_requested(asked.step)
    if entry is not None:
        return words.step_was_complete(entry.step, entry.tier)
    return words.training_reached(restore.steps_made(gang))


def found(
    gang: Gang, assignment: Mapping[str, str], rejected: tuple[RejectedStep, ...], *, hidden: bool = False
) -> Message:
    """Return what was looked for in each tier, where, and what is there.

    Args:
        gang: the gang.
        assignment: place -> ready member.
        rejected: the steps that don't exist any more, those of this decision among them.
        hidden: whether a directory has too many steps.
    """
    if not restore.tiers_of(gang):
        return words.no_tiers()
    full = restore.hides_steps(gang) if hidden else ()
    tiers = [
        words.tier_is_full(tier.name, MAX_FOUND) if tier.name in full else _in_tier(gang, tier, assignment, rejected)
        for tier in restore.tiers_of(gang)
        if not full or tier.name in full
    ]
    return words.tiers_have(tiers)


def _in_tier(gang: Gang, tier: Tier, assignment: Mapping[str, str], rejected: tuple[RejectedStep, ...]) -> Message:
    there = {one.point.step for one in restore.candidates(gang, dict(assignment), ()) if one.point.tier == tier.name}
    usable = {
        one.point.step for one in restore.candidates(gang, dict(assignment), rejected) if one.point.tier == tier.name
    }
    unusable = sorted(there - usable, reverse=True)
    point, members = gang.status.restore_point, frozenset(report.member for report in unseen_by(gang))
    unseen = [name for name in gang.members if name in members] if point is not None and point.step in unusable else []
    return words.tier_has(
        tier.name,
        sorted(usable, reverse=True),
        unusable,
        _looked_for(gang, tier),
        unseen,
        0 if point is None else point.step,
    )


def _looked_for(gang: Gang, tier: Tier) -> Message:
    source = tier.source
    if not isinstance(source, DirectorySource):
        return words.registrations_looked_for(str(tier.scope))
    folder, complete = folder_rule(source)
    scanned = gang.observed.scanned
    pod = None if scanned is None else scanned.pod
    seen_by = next((one.member for one in gang.observed.pods if one.uid == pod), "")
    return words.folders_looked_for(folder, source.directory, complete or "", seen_by)
