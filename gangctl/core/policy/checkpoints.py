"""Registered checkpoints: what ranks have completed and registered at the framework API.

    part(r, s)  = a registration of step s by rank r that the lineage has, from a pod that counts for the rank's place
    complete(s) = part(r, s) for every rank r of every process group

A pod counts if it is the current one of the member that holds the place; one that was replaced counts only for what it
saved in the attempt that ran last. A Member tier's parts must be with the members that will load them, and of this boot
of their nodes. Of Shared tiers
the newest complete steps are kept in the status, since a lost pod takes its registrations with it; a rank of the place
that drops a step erases it there. A step of which any part is missing, undone or dropped must not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.checkpoint_status import RecordedStep
from gangctl.api.gangjob import ApiSource, Tier
from gangctl.api.status import Status
from gangctl.core.facts import lineage
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.numbering import numbered
from gangsidecar.wire import Checkpoint, Report

KEPT: Final = 4
"""Newest steps of a Shared tier that are kept in the status: no restart goes further back."""


def of_every_member(gang: Gang, tier: Tier, assignment: Mapping[str, str]) -> list[RecordedStep]:
    """Complete steps of a Member tier: the members of this assignment hold them for their own ranks. Newest first."""
    parts = {
        place: [one for one in report.checkpoints if not one.earlier_boot]
        for place, member in assignment.items()
        if (report := gang.report(member)) is not None
    }
    return _complete(gang, tier, parts)


def of_all_ranks(gang: Gang, tier: Tier) -> list[RecordedStep]:
    """Complete steps of a Shared tier, as ranks have registered them or as the status remembers, newest first."""
    line = lineage.of(gang.status)
    dropped = _dropped(gang, tier)
    found = {
        entry.step: entry
        for entry in gang.status.recorded_steps
        if entry.tier == tier.name
        and lineage.exists(line, entry.step, entry.attempt)
        and entry.attempt > dropped.get(entry.step, -1)
    }
    parts = {place: _registered(gang, place) for place in gang.places}
    found |= {entry.step: entry for entry in _complete(gang, tier, parts)}
    return sorted(found.values(), key=lambda one: -one.step)


def remembered(gang: Gang, status: Status) -> Status:
    """The status with the newest steps that all ranks have registered by now."""
    checkpoint = gang.spec.checkpoint
    tiers = [tier for tier in (() if checkpoint is None else checkpoint.tiers) if isinstance(tier.source, ApiSource)]
    if not tiers and not status.recorded_steps and status.completed_step is None:
        return status
    point, line, last = status.restore_point, lineage.of(status), status.completed_step
    shared = {tier.name: of_all_ranks(gang, tier) for tier in tiers if tier.scope == "Shared"}
    steps = tuple(entry for found in shared.values() for entry in found[:KEPT])
    complete = [found[0] for found in shared.values() if found]
    complete += [
        entry for tier in tiers if tier.scope == "Member" for entry in of_every_member(gang, tier, gang.holders)[:1]
    ]
    if last is not None and lineage.exists(line, last.step, last.attempt):
        complete.insert(0, last)  # What was complete once stays on record, whatever becomes of it.
    since = [one for one in complete if point is None or one.step > point.step]
    newest = max(since, key=lambda one: one.step, default=None)
    if (steps, newest) == (status.recorded_steps, last):
        return status
    return changed(status, recorded_steps=steps, completed_step=newest)


def up_to(steps: tuple[RecordedStep, ...], last: int | None) -> tuple[RecordedStep, ...]:
    """Those that still exist when an attempt starts from step ``last`` (None: from the beginning)."""
    return tuple(entry for entry in steps if last is not None and entry.step <= last)


def _complete(gang: Gang, tier: Tier, parts: Mapping[str, Iterable[Checkpoint]]) -> list[RecordedStep]:
    """The steps of which every rank has its part, newest first. ``parts``: place -> what counts for it."""
    line, last = lineage.of(gang.status), dict[int, float]()  # Attempt -> its last step that stands.
    found: dict[int, RecordedStep] | None = None
    for place, needed in numbered(gang.spec).ranks.items():
        having: dict[int, dict[int, Checkpoint]] = {}
        for one in parts.get(place, ()):
            if one.tier != tier.name or one.rank not in needed or (found is not None and one.step not in found):
                continue
            if one.attempt not in last:
                last[one.attempt] = lineage.last_step(line, one.attempt)
            if one.step <= last[one.attempt]:
                having.setdefault(one.step, {})[one.rank] = one
        found = {
            step: _merged(None if found is None else found[step], by_rank)
            for step, by_rank in having.items()
            if len(by_rank) == len(needed)
        }
        if not found:
            return []
    return sorted((found or {}).values(), key=lambda one: -one.step)


def _merged(entry: RecordedStep | None, by_rank: Mapping[int, Checkpoint]) -> RecordedStep:
    """One step with the parts of one more place."""
    last = [*by_rank.values()][-1]
    attempt = max(one.attempt for one in by_rank.values())
    attempt = attempt if entry is None else max(attempt, entry.attempt)
    path = last.path or ("" if entry is None else entry.path)
    return RecordedStep(tier=last.tier, step=last.step, path=path, marker=f"attempt-{attempt}", attempt=attempt)


def _registered(gang: Gang, place: str) -> Iterator[Checkpoint]:
    for report, only in _counting(gang, place):
        yield from (one for one in report.checkpoints if only is None or one.attempt == only)


def _dropped(gang: Gang, tier: Tier) -> dict[int, int]:
    """Step -> the newest attempt in which a rank of its place has dropped it."""
    ranks = numbered(gang.spec).ranks
    found: dict[int, int] = {}
    for place, own in ranks.items():
        for report, only in _counting(gang, place):
            for one in report.dropped:
                if one.tier == tier.name and one.rank in own and (only is None or one.attempt == only):
                    found[one.step] = max(found.get(one.step, 0), one.attempt)
    return found


def _counting(gang: Gang, place: str) -> Iterator[tuple[Report, int | None]]:
    """The reports that count for the place, oldest pod first, each with the only attempt that counts (None: all)."""
    member = gang.holders[place]
    current = gang.incarnation(member)
    for report in sorted(gang.reports.get(member, ()), key=lambda one: one.incarnation):
        if report.incarnation == current:
            yield report, None
        elif report.incarnation < current:
            yield report, gang.status.started_attempt
