"""Registered checkpoints: what ranks have completed and registered at the framework API.

The rule: a step counts when every rank has registered it. Entries of a Member tier count for the member that has them
and are lost with its pod. Of a Shared tier the newest complete steps are kept in the status, since a lost pod takes its
registrations with it. A step beyond the restore point of a later attempt must not count: it is undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.gangjob import ApiSource, Tier
from gangctl.api.status import RecordedStep, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.numbering import numbered
from gangsidecar.wire import Checkpoint

KEPT: Final = 4
"""Newest steps of a Shared tier that are kept in the status: no restart goes further back."""


def of_every_member(gang: Gang, tier: Tier, assignment: dict[str, str]) -> list[RecordedStep]:
    """Steps of a Member tier that each member holds for its own ranks."""
    ranks = numbered(gang.spec).ranks
    entries = {place: _reported(gang, member) for place, member in assignment.items() if place in ranks}
    held = [
        {step for step, having in _holding(told, tier).items() if set(ranks[place]) <= having}
        for place, told in entries.items()
    ]
    everything = [entry for told in entries.values() for entry in told]
    steps = sorted(set.intersection(*held)) if held else []
    return [RecordedStep(tier=tier.name, step=step, marker=_marker(everything, tier, step)) for step in steps]


def of_all_ranks(gang: Gang, tier: Tier) -> list[RecordedStep]:
    """Steps of a Shared tier that all ranks have registered, by themselves or as the status remembers, newest first."""
    found = {entry.step: entry for entry in gang.status.recorded_steps if entry.tier == tier.name}
    groups = numbered(gang.spec).groups
    ranks = numbered(gang.spec).ranks
    entries = {group: _of_group(gang, group) for group in groups}
    having = {group: _holding(entries[group], tier) for group in groups}
    steps = set.intersection(*(set(having[group]) for group in groups)) if groups else set()
    for step in steps:
        if all(set(ranks[place]) <= having[group][step] for group in groups for place in groups[group]):
            told = [one for group in groups for one in entries[group] if (one.tier, one.step) == (tier.name, step)]
            found[step] = RecordedStep(tier=tier.name, step=step, path=told[-1].path, marker=_marker(told, tier, step))
    return sorted(found.values(), key=lambda one: -one.step)


def remembered(gang: Gang, status: Status) -> Status:
    """The status with the newest steps of Shared tiers that all ranks have registered by now."""
    checkpoint = gang.spec.checkpoint
    tiers = () if checkpoint is None else checkpoint.tiers
    shared = [tier for tier in tiers if tier.scope == "Shared" and isinstance(tier.source, ApiSource)]
    steps = tuple(entry for tier in shared for entry in of_all_ranks(gang, tier)[:KEPT])
    return status if steps == status.recorded_steps else changed(status, recorded_steps=steps)


def up_to(steps: tuple[RecordedStep, ...], last: int | None) -> tuple[RecordedStep, ...]:
    """Those that still exist when an attempt starts from step ``last`` (None: from the beginning)."""
    return tuple(entry for entry in steps if last is not None and entry.step <= last)


def _marker(entries: Iterable[Checkpoint], tier: Tier, step: int) -> str:
    """Identity of a registration: the newest attempt that any rank wrote it in."""
    attempts = [one.attempt for one in entries if (one.tier, one.step) == (tier.name, step)]
    return f"attempt-{max(attempts, default=0)}"


def _reported(gang: Gang, member: str) -> tuple[Checkpoint, ...]:
    report = gang.report(member)
    return () if report is None else report.checkpoints


def _of_group(gang: Gang, group: str) -> list[Checkpoint]:
    """What the pods of the group have registered, those that are being replaced among them."""
    return [
        entry
        for heard in gang.observed.heard
        if (member := gang.members.get(heard.report.member)) is not None and member.role.group == group
        for entry in heard.report.checkpoints
    ]


def _holding(entries: Iterable[Checkpoint], tier: Tier) -> dict[int, set[int]]:
    """Step -> the ranks that have registered it."""
    having: dict[int, set[int]] = {}
    for entry in entries:
        if entry.tier == tier.name:
            having.setdefault(entry.step, set()).add(entry.rank)
    return having
