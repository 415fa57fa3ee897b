"""Checkpoints: which steps are complete for every rank, and of which line of training.

Registered checkpoints: what ranks have completed and registered at the framework API.

    part(r, s)  = a registration of step s by rank r that the lineage has, from a pod that counts for the rank's place
    complete(s) = part(r, s) for every rank r of every process group

A pod counts if it is the current one of the member that holds the place; one that was replaced counts only for what it
saved in the attempt that ran last. A Member tier's parts must be with the members that will load them, and of this boot
of their nodes; those of a Peers tier may be with any member of the process group that will run. Of Shared tiers the
newest complete steps are kept in the status, since a lost pod takes its registrations with it; a rank of the place that
drops a step erases it there. Parts that an attempt of another size has written don't count; what was complete then in a
Shared tier is kept, and any size loads it. A step of which any part is missing, undone or dropped must not count.

A Process tier is the state of processes that survive the stop. Each rank of a group has all of it:

    complete(s) = some rank of every process group has registered step s in the attempt that ran last

It counts for another size where the tier is ``reshardable``, which other memory can't be. A rank registers as it parks.
One that has applied the optimizer's step has passed the collective that all ranks of that step were in, so its state is
that of an undisturbed run, and those that have not applied it get it from this rank. What a rank registered in an
earlier attempt is no longer what its process has, and must not count.

Verified steps: what a rank has verified, and what is older than a check that has passed.

    verified(s) = a rank has verified s, or s <= checked
    checked     = what the gang's first attempt restores; after a check that verifies: the last step made, less
                  ``verifiesAfterSteps``, or all that exists if that is 0; at most what the attempt after it restores

If a member that ran fails a check by a wrong result, steps beyond the newest verified one aren't trusted. A pass must
not verify what a pod has computed that wasn't checked or couldn't tell; of pods that are gone by then, it says nothing.

Checkpoint layouts: how frameworks name a step's folder or file, and which file in the folder they write last.

Lineage: which checkpoints belong to the gang's history.

    exists(s, a) = s <= R for every attempt b > a that started from step R

A restart from step R undoes what came after R: what an earlier attempt saved beyond it no longer exists, in no tier and
in no report, and must not be mixed with what a later attempt saves as the same step. So all parts that exist of one
step are of one history. Only entries that can still matter are kept: attempts and steps both grow. If there are too
many, the two oldest become one that denies more, never less.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gangctl.api.gangjob import ApiSource, DirectorySource, Tier
from gangctl.api.model import changed
from gangctl.api.roles import number_places
from gangctl.api.status import GangPhase, LineageEntry, RecordedStep, Status, VerifiedStep
from gangctl.core.facts.faults import corrupt_since
from gangctl.core.facts.gang import Gang, once, raised_incarnations
from gangctl.core.facts.progress import highest_step
from gangctl.core.facts.world import Heard, RankPart
from gangctl.core.policy.checks import of_attempt
from gangsidecar.wire import MAX_VERIFIED

# Registered checkpoints


_Reports = tuple[tuple[Heard, int | None], ...]
"""Reports, oldest pod first, each with the only attempt that counts (None: all)."""
_Step = TypeVar("_Step", RecordedStep, VerifiedStep)
MAX_STEPS: Final = 4
"""Newest steps of a Shared tier that are kept in the status: no restart goes further back."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """Which reports count, by place."""

    alone: Mapping[str, Heard]
    """The only one, of whatever attempt: that of nearly every place."""
    several: Mapping[str, _Reports] = field(default_factory=dict)
    """All others."""

    def of(self, place: str) -> _Reports:
        heard = self.alone.get(place)
        return self.several.get(place, ()) if heard is None else ((heard, None),)


def of_every_member(gang: Gang, tier: Tier, assignment: Mapping[str, str]) -> list[RecordedStep]:
    """Complete steps of a Member tier: the members of this assignment hold them for their own ranks. Newest first.

    Of a Peers tier: some member of the rank's process group holds them. Of a Process tier: any of the group.
    """
    if assignment.keys() != gang.holders.keys() and not tier.reshardable:
        return []  # The coming attempt has another size.
    if assignment == gang.holders:
        return _of_holders(gang)[tier.name]
    return _of_members(gang, tier, assignment)


@once
def _of_holders(gang: Gang) -> Mapping[str, list[RecordedStep]]:
    """Member or Peers tier -> the same, of those that hold the places: asked for several times in a decision."""
    tiers = () if gang.spec.checkpoint is None else gang.spec.checkpoint.tiers
    near = [tier for tier in tiers if tier.scope != "Shared" and isinstance(tier.source, ApiSource)]
    return {tier.name: _of_members(gang, tier, gang.holders) for tier in near}


def _of_members(gang: Gang, tier: Tier, assignment: Mapping[str, str]) -> list[RecordedStep]:
    heard = gang.heard_by_member
    here = {place: heard[member] for place, member in assignment.items() if member in heard}
    return _complete(gang, tier, _Sources(here))


def of_all_ranks(gang: Gang, tier: Tier) -> list[RecordedStep]:
    """Complete steps of a Shared tier, as ranks have registered them or as the status remembers, newest first."""
    line = gang.status.lineage
    dropped = _dropped(gang, tier)
    found = {
        entry.step: entry
        for entry in gang.status.recorded_steps
        if entry.tier == tier.name
        and step_exists(line, entry.step, entry.attempt)
        and entry.attempt > dropped.get(entry.step, -1)
    }
    found |= {entry.step: entry for entry in _complete(gang, tier, _counting(gang))}
    return sorted(found.values(), key=lambda one: -one.step)


def remember_steps(gang: Gang, status: Status) -> Status:
    """The status with the newest steps that all ranks have registered or one verified, and the first not trusted."""
    checkpoint = gang.spec.checkpoint
    status = _remember_verified(gang, note_corruption(gang, status))
    tiers = [tier for tier in (() if checkpoint is None else checkpoint.tiers) if isinstance(tier.source, ApiSource)]
    if not tiers and not status.recorded_steps and status.completed_step is None:
        return status
    point, line, last = status.restore_point, status.lineage, status.completed_step
    shared = {tier.name: of_all_ranks(gang, tier) for tier in tiers if tier.scope == "Shared"}
    steps = tuple(entry for found in shared.values() for entry in found[:MAX_STEPS])
    complete = [found[0] for found in shared.values() if found]
    near = [tier for tier in tiers if tier.scope not in {"Shared", "Process"}]  # What a process has goes with it.
    complete += [entry for tier in near for entry in of_every_member(gang, tier, gang.holders)[:1]]
    if last is not None and step_exists(line, last.step, last.attempt):
        complete.insert(0, last)  # What was complete once stays on record, whatever becomes of it.
    later = [one for one in complete if point is None or one.step > point.step]
    newest = max(later, key=lambda one: one.step, default=None)
    if (steps, newest) == (status.recorded_steps, last):
        return status
    return changed(status, recorded_steps=steps, completed_step=newest)


def _remember_verified(gang: Gang, status: Status) -> Status:
    found = verified_steps(gang)
    return status if found == status.verified_steps else changed(status, verified_steps=found)


@once
def verified_steps(gang: Gang) -> tuple[VerifiedStep, ...]:
    """The newest steps that were verified, as reports and the status have it: those that the lineage has."""
    line, found = gang.status.lineage, {one.step: one.attempt for one in gang.status.verified_steps}
    for heard in gang.heard.values():
        for one in heard.report.verified:
            found[one.step] = max(one.attempt, found.get(one.step, 0))
    steps = sorted((step for step, attempt in found.items() if step_exists(line, step, attempt)), reverse=True)
    return tuple(VerifiedStep(step=step, attempt=found[step]) for step in steps[:MAX_VERIFIED])


def note_corruption(gang: Gang, status: Status) -> Status:
    """The status with the first step that isn't trusted."""
    since = min((one for one in (corrupt_since(gang), status.corrupt_since) if one is not None), default=None)
    return status if since == status.corrupt_since else changed(status, corrupt_since=since)


def verified_until(gang: Gang) -> float:
    """The last step that checks have verified, those before the coming attempt included; -1 if there is none."""
    status = gang.status
    stored = _depth(status.checked_step)
    if status.phase is GangPhase.RUNNING:
        return stored
    passed = {one.name for one in of_attempt(gang).results if one.verifies}
    after = [one.verifies_after for one in gang.spec.recovery.checks if one.name in passed]
    margin = min((one for one in after if one is not None), default=None)
    if margin == 0:
        return math.inf
    made = None if margin is None else highest_step(gang, status.started_attempt)
    return stored if made is None or margin is None else max(stored, made.step - margin)


def checked_step(gang: Gang, restored: int | None) -> int | None:
    """What checks have verified of what there is after the restart from ``restored``."""
    if restored is None or not gang.spec.recovery.checks:
        return None
    is_first = gang.status.started_attempt == 0
    until = restored if is_first else min(restored, verified_until(gang))
    return int(until) if until > _BEGINNING else None


def first_unverified(gang: Gang) -> int:
    """The step after the newest verified one."""
    return 1 + max(_depth(gang.status.checked_step), *(one.step for one in verified_steps(gang)), _BEGINNING)


def up_to(steps: tuple[_Step, ...], last: int | None) -> tuple[_Step, ...]:
    """Those that still exist when an attempt starts from step ``last`` (None: from the beginning)."""
    return tuple(entry for entry in steps if last is not None and entry.step <= last)


def _complete(gang: Gang, tier: Tier, sources: _Sources) -> list[RecordedStep]:
    """The steps of which every rank has its part, newest first."""
    name = tier.name
    match tier.scope:
        case "Process":
            kinds, since = _kinds_of_groups(gang, tier, sources), gang.status.started_attempt
        case "Peers":
            kinds, since = _kinds_among_peers(gang, tier, sources), _sized_at(gang)
        case _:
            kinds, since = _kinds(gang, tier, sources), _sized_at(gang)
    line = gang.status.lineage
    found = dict[int, int]()  # Step -> the newest attempt of its parts.
    for number, kind in enumerate(kinds):
        having = {
            one.step: one.attempt
            for one in kind
            if one.attempt >= since
            and not (one.earlier_boot and tier.scope != "Shared")
            and step_exists(line, one.step, one.attempt)
        }
        if number > 0:
            having = {step: max(attempt, found[step]) for step, attempt in having.items() if step in found}
        found = having
    with_path = {one.step for kind in kinds for one in kind if one.has_path}
    return [
        RecordedStep(
            tier=name,
            step=step,
            path=_path(gang, tier, sources, step) if step in with_path else "",
            marker=f"attempt-{attempt}",
            attempt=attempt,
        )
        for step, attempt in sorted(found.items(), reverse=True)
    ]


def _kinds(gang: Gang, tier: Tier, sources: _Sources) -> set[tuple[RankPart, ...]]:
    """What ranks have registered in the tier, as far as it counts. Most have the same: it is found once for all."""
    name, alone = tier.name, sources.alone
    alike: set[frozenset[tuple[RankPart, ...]]] = set()
    kinds: set[tuple[RankPart, ...]] = set()
    for place, own in number_places(gang.roles).ranks.items():
        heard = alone.get(place)
        told = None if heard is None else heard.registered.get(name)
        if told is not None and told.ranks == own:
            alike.add(told.kinds)
        elif told is None and (heard is not None or place not in sources.several):
            kinds.add(())
        else:
            kinds.update(_parts(name, rank, sources.of(place)) for rank in own)
    return kinds.union(*alike)


def _kinds_among_peers(gang: Gang, tier: Tier, sources: _Sources) -> set[tuple[RankPart, ...]]:
    """What each rank has, or another member of its process group of it."""
    numbering, kinds = number_places(gang.roles), set[tuple[RankPart, ...]]()
    for places in numbering.groups.values():
        held: dict[int, tuple[RankPart, ...]] = {}
        for place in places:
            heard = sources.alone.get(place)
            told = None if heard is None else heard.registered.get(tier.name)
            for rank, parts in () if told is None else told.parts.items():
                held[rank] = (*held.get(rank, ()), *parts)
        kinds.update(held.get(rank, ()) for place in places for rank in numbering.ranks[place])
    return kinds


def _kinds_of_groups(gang: Gang, tier: Tier, sources: _Sources) -> set[tuple[RankPart, ...]]:
    """What any rank of each process group has, the newest attempt last: also if the coming attempt has other places."""
    held: dict[str, list[RankPart]] = {group: [] for group in number_places(gang.roles).groups}
    for place, heard in sources.alone.items():
        group = gang.members[place].role.group
        if group in held and (told := heard.registered.get(tier.name)) is not None:
            held[group] += [part for parts in told.parts.values() for part in parts]
    return {tuple(sorted(parts)) for parts in held.values()}


def _sized_at(gang: Gang) -> int:
    """The attempt that has begun with the present size."""
    return 0 if gang.status.size is None else gang.status.size.attempt


def _parts(tier: str, rank: int, sources: _Reports) -> tuple[RankPart, ...]:
    """What the rank has registered in the tier, as far as it counts."""
    found = [
        (one, only)
        for heard, only in sources
        if (told := heard.registered.get(tier)) is not None
        for one in told.parts.get(rank, ())
    ]
    return tuple([one for one, only in found if only is None or one.attempt == only])


def _path(gang: Gang, tier: Tier, sources: _Sources, step: int) -> str:
    """Where the last rank that said so has the step."""
    for place, own in reversed(number_places(gang.roles).ranks.items()):
        for heard, _ in reversed(sources.of(place)):
            for one in reversed(heard.report.checkpoints):
                if (one.tier, one.step) == (tier.name, step) and one.rank in own and one.path:
                    return one.path
    return ""


def _dropped(gang: Gang, tier: Tier) -> dict[int, int]:
    """Step -> the newest attempt in which a rank of its place has dropped it."""
    found: dict[int, int] = {}
    if not any(heard.report.dropped for heard in gang.heard.values()):
        return found
    sources = _counting(gang)
    for place, own in number_places(gang.roles).ranks.items():
        for heard, only in sources.of(place):
            for one in heard.report.dropped:
                if one.tier == tier.name and one.rank in own and (only is None or one.attempt == only):
                    found[one.step] = max(found.get(one.step, 0), one.attempt)
    return found


@once
def _counting(gang: Gang) -> _Sources:
    """The reports that count for a Shared tier."""
    replaced, base = raised_incarnations(gang.status), gang.status.base_incarnation
    before, heard = gang.status.started_attempt, gang.heard_of_pods
    alone: dict[str, Heard] = {}
    several: dict[str, _Reports] = {}
    for place, member in gang.holders.items():
        if member not in heard:
            continue
        current, those = replaced.get(member, base), heard[member]
        if len(those) == 1 and those[0].report.incarnation == current:
            alone[place] = those[0]
        else:
            several[place] = tuple(
                (one, None if one.report.incarnation == current else before)
                for one in those
                if one.report.incarnation <= current
            )
    return _Sources(alone, several)


# Checkpoint layouts


LAYOUTS: Final = {
    # torch.distributed.checkpoint, filesystem.py: finish() writes .metadata.tmp, syncs it and renames it to .metadata
    # after all ranks have written. The folder's name is the caller's; step-N is torchtitan's.
    "TorchDCP": ("step-{step}", ".metadata"),
    # transformers, trainer.py: _save_checkpoint() saves model, optimizer, scheduler and random states into
    # checkpoint-N and then trainer_state.json. (Old releases wrote the random states after it.)
    "HuggingFace": ("checkpoint-{step}", "trainer_state.json"),
    # Megatron-LM, core/dist_checkpointing/serialization.py: metadata.json is written by rank 0 in the finalize
    # function, after every shard; iter_N is padded to 7 digits. The older format "torch" marks nothing in the folder.
    "Megatron": ("iter_{step}", "metadata.json"),
    # Orbax, checkpoint/_src/path/atomicity.py: a step is written to N.orbax-checkpoint-tmp, _CHECKPOINT_METADATA gets
    # its commit time, and the folder is renamed to N.
    "Orbax": ("{step}", "_CHECKPOINT_METADATA"),
    # Lightning, callbacks/model_checkpoint.py: "{epoch}-{step}.ckpt" unless the script says more, and "-v1" where the
    # name is taken. lightning/fabric/utilities/cloud_io.py: _atomic_save() writes elsewhere and moves the file.
    "Lightning": ("*step={step}*.ckpt", ""),
}
"""Layout -> (the name of a step with ``{step}``, the file that marks its folder complete; empty = a step is a file)."""


def folder_rule(source: DirectorySource) -> tuple[str, str]:
    """The name with ``{step}``, and the file that marks a folder complete (empty = a step is a file)."""
    if source.layout == "Pattern":
        return source.pattern or "{step}", source.complete or ""
    return LAYOUTS[source.layout]


# Lineage


LINEAGE_KEPT: Final = 32
"""So many restarts, each from a newer step than the one before, are told apart."""
_BEGINNING: Final = -1

Lineage = tuple[LineageEntry, ...]


def step_exists(lineage: Lineage, step: int, attempt: int) -> bool:
    """Whether a checkpoint of ``step`` that ``attempt`` has written is part of the history."""
    return step <= last_step_of_line(lineage, attempt)


def last_step_of_line(lineage: Lineage, attempt: int) -> float:
    """The last step of ``attempt`` that no later attempt has undone; infinite if all of them stand."""
    return min((_depth(entry.step) for entry in lineage if entry.attempt > attempt), default=math.inf)


def extended_lineage(lineage: Lineage, attempt: int, step: int | None) -> Lineage:
    """The lineage after ``attempt`` has started from ``step`` (None: from the beginning)."""
    kept = [entry for entry in lineage if _depth(entry.step) < _depth(step)]
    kept.append(LineageEntry(attempt=attempt, step=step))
    while len(kept) > LINEAGE_KEPT:
        first, second = kept[:2]
        kept[:2] = [LineageEntry(attempt=second.attempt, step=first.step)]
    return tuple(kept)


def line_began_at(lineage: Lineage) -> int:
    """The newest attempt that started from the beginning; 0 if that is not known any more."""
    return max((entry.attempt for entry in lineage if entry.step is None), default=0)


def _depth(step: int | None) -> int:
    return _BEGINNING if step is None else step
