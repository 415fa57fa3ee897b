"""A missing step: why there should be a restore point, what was looked for, where, and what to do.

The rule: a gang that waits for a restore point, or is held for want of one, says which steps there should be and which
there are, what marks a step complete, who looked, and the commands that lead on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gangctl.api.checkpoint_status import RejectedStep
from gangctl.api.gangjob import DirectorySource, Tier
from gangctl.core.facts.faults import unseen_by
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.text import listed
from gangctl.core.policy import restore
from gangctl.core.policy.layouts import folder_rule
from gangsidecar.wire import MAX_FOUND

SHOWN: Final = 8
"""So many steps of a tier are named."""


def expected(gang: Gang) -> str:
    """Why the gang does not start from the beginning."""
    asked, entry = gang.status.restart_from, restore.recorded(gang)
    if asked is not None:
        return "a start from the beginning was requested" if asked.step is None else f"step {asked.step} was requested"
    if entry is not None:
        return f"step {entry.step} was complete in tier {entry.tier}"
    return f"training has reached step {restore.steps_made(gang)}"


def found(
    gang: Gang, assignment: Mapping[str, str], rejected: tuple[RejectedStep, ...], *, hidden: bool = False
) -> str:
    """What was looked for in each tier, where, and what is there.

    Args:
        gang: the gang.
        assignment: place -> ready member.
        rejected: the steps that don't exist any more, those of this decision among them.
        hidden: whether a directory has too many steps.
    """
    if not restore.tiers_of(gang):
        return "the job has no spec.checkpoint.tiers to find steps in"
    full = restore.hides_steps(gang) if hidden else ()
    return "; ".join(
        f"tier {tier.name} has {MAX_FOUND} steps or more, and {MAX_FOUND} are looked at"
        if tier.name in full
        else _in_tier(gang, tier, assignment, rejected)
        for tier in restore.tiers_of(gang)
        if not full or tier.name in full
    )


def choose(gang: Gang) -> str:
    """What to do where no step is found."""
    return f"make one available and run {_restart(gang)}, or choose with its option --from-step N or --from-beginning"


def make_room(gang: Gang) -> str:
    """What to do where a directory has too many steps to tell which are new."""
    return f"move away the steps that are not to be used, and run {_restart(gang)} --from-beginning"


def mend(gang: Gang) -> str:
    """What to do where a directory can't be listed."""
    return f"mend the directory, or remove its tier from spec.checkpoint.tiers, and run {_restart(gang)}"


def _restart(gang: Gang) -> str:
    return f"gangctl restart {gang.job.metadata.name}"


def _in_tier(gang: Gang, tier: Tier, assignment: Mapping[str, str], rejected: tuple[RejectedStep, ...]) -> str:
    there = {one.point.step for one in restore.candidates(gang, dict(assignment), ()) if one.point.tier == tier.name}
    usable = {
        one.point.step for one in restore.candidates(gang, dict(assignment), rejected) if one.point.tier == tier.name
    }
    text = f"tier {tier.name} has {_steps(usable) if usable else 'no complete step'}"
    if there - usable:
        text += f", and {_steps(there - usable)} that {'is' if len(there - usable) == 1 else 'are'} not used any more"
        text += _unseen(gang, there - usable)
    return f"{text} ({_looked_for(gang, tier)})"


def _unseen(gang: Gang, steps: Collection[int]) -> str:
    """Which members could not see the restore point of the failed attempt, if it is one of these steps."""
    point, members = gang.status.restore_point, frozenset(report.member for report in unseen_by(gang))
    if not members or point is None or point.step not in steps:
        return ""
    return f": {listed([name for name in gang.members if name in members])} could not see step {point.step}"


def _looked_for(gang: Gang, tier: Tier) -> str:
    source = tier.source
    if isinstance(source, DirectorySource):
        folder, complete = folder_rule(source)
        scanned = gang.observed.scanned
        pod = None if scanned is None else scanned.pod
        seen = next((f", as {one.member} sees it" for one in gang.observed.pods if one.uid == pod), "")
        return f"folders {folder}{f' with {complete}' if complete else ''} in {source.directory}{seen}"
    if tier.scope == "Member":
        return "registered by every rank in its current pod"
    if tier.scope == "Peers":
        return "of every rank, in the memory of a pod that runs"
    return "registered by every rank"


def _steps(steps: Iterable[int]) -> str:
    newest = sorted(steps, reverse=True)
    more = f" and {len(newest) - SHOWN} older" if len(newest) > SHOWN else ""
    return f"step{'' if len(newest) == 1 else 's'} {', '.join(map(str, newest[:SHOWN]))}{more}"
