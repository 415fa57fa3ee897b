"""Checkpoints as they really are: files with a history, on a shared directory or in the memory of a pod.

Each file is one rank's part of one step. It holds a *line*: how the state in it came about. Nothing that a component
believes is in here; the invariants in ``restored.py`` compare what the code under test chose with these files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gangctl.api.gangjob import ApiSource, Tier
from gangctl.api.roles import number_places
from gangctl.core.facts.gang import holders, incarnation, roles_of
from gangsidecar.wire import Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gangctl.api.gangjob import Spec
    from gangctl.api.status import Status
    from tests.simulation.universe import Universe
    from tests.simulation.values import Box

SHARED_DIRECTORY: Final = ""
"""Where a file of a Shared tier is. One of a Member or Peers tier is in the memory of a pod, named by its UID."""
REMEMBERED_STEPS: Final = 12
"""So many newest steps that are gone are remembered as gone."""

Line = tuple[tuple[int, int], ...]
"""How a state of the training came about: (attempt, the last step that it made), in order. () = the beginning."""
Rank = tuple[str, int]
"""Process group and rank."""


def grown(line: Line, attempt: int, step: int) -> Line:
    """The line after the attempt has made this step."""
    if line and line[-1][0] == attempt:
        line = line[:-1]
    return (*line, (attempt, step))


def cut(line: Line, step: int) -> Line:
    """The line as it was after this step."""
    kept: list[tuple[int, int]] = []
    for attempt, last in line:
        kept.append((attempt, min(last, step)))
        if last >= step:
            break
    return tuple(kept) if step else ()


def last_step(line: Line) -> int:
    """The step that the state is of."""
    return line[-1][1] if line else 0


@dataclass(frozen=True, slots=True)
class File:
    """One rank's part of one step."""

    tier: str
    where: str
    step: int
    rank: Rank
    attempt: int
    """In which it was written, or deleted."""
    pod: str
    """That wrote or deleted it."""
    line: Line | None
    """The state in it; None = it was begun, or was deleted."""
    sick: bool = False
    """It can be seen and not loaded."""

    @property
    def place(self) -> tuple[str, str, int, Rank]:
        """What is overwritten by another of the same."""
        return self.tier, self.where, self.step, self.rank


@dataclass(frozen=True, slots=True)
class Marker:
    """The file that is written last: it marks a step of a directory complete."""

    tier: str
    step: int
    name: str


@dataclass(frozen=True, slots=True)
class Disk:
    """All of them, sorted."""

    files: tuple[File, ...] = ()
    markers: tuple[Marker, ...] = ()

    def at(self, tier: str, where: str, step: int, rank: Rank) -> File | None:
        """The file at this place."""
        return next((file for file in self.files if file.place == (tier, where, step, rank)), None)

    def marker(self, tier: str, step: int) -> Marker | None:
        """What marks this step complete."""
        return next((one for one in self.markers if (one.tier, one.step) == (tier, step)), None)

    def with_file(self, file: File) -> Disk:
        """The disk with this file in place of what was there."""
        files = [*(one for one in self.files if one.place != file.place), file]
        gone = sorted({one.step for one in files if one.line is None and (one.tier, one.where) == file.place[:2]})
        old = set(gone[:-REMEMBERED_STEPS])
        kept = (
            one
            for one in files
            if one.line is not None or (one.tier, one.where) != file.place[:2] or one.step not in old
        )
        return replace(self, files=tuple(sorted(kept, key=lambda one: one.place)))

    def without_steps(self, tier: str, steps: Iterable[int]) -> Disk:
        """The disk after these steps of a directory were deleted."""
        gone = {(tier, step) for step in steps}
        return Disk(
            tuple(one for one in self.files if (one.tier, one.step) not in gone),
            tuple(one for one in self.markers if (one.tier, one.step) not in gone),
        )

    def without_memory(self, pod: str) -> Disk:
        """The disk after the memory of a pod was lost."""
        return replace(self, files=tuple(one for one in self.files if one.where != pod))


def is_directory(tier: Tier) -> bool:
    """Whether a scan tells which of its steps are complete."""
    return not isinstance(tier.source, ApiSource)


def tiers(spec: Spec) -> tuple[Tier, ...]:
    """The job's checkpoint tiers."""
    return () if spec.checkpoint is None else spec.checkpoint.tiers


def where(tier: Tier, pod: str) -> str:
    """Where a pod writes its part, and where it looks for it."""
    return SHARED_DIRECTORY if tier.scope == "Shared" else pod


def path(tier: Tier, step: int) -> str:
    """What a framework calls it. The supervisor looks for it only in a Shared tier."""
    return f"/{tier.name}/step-{step}" if tier.scope == "Shared" else ""


def found(u: Universe, box: Box) -> tuple[Found, ...]:
    """What a scan sees from this pod: a directory that isn't mounted is empty, and that is no error."""
    if box.unmounted:
        return ()
    newest = sorted(u.disk.markers, key=lambda one: (one.tier, -one.step))
    return tuple(Found(one.tier, one.step, f"/{one.tier}/step-{one.step}", one.name) for one in newest)


def sees(u: Universe, box: Box, tier: str, step: int) -> bool:
    """Whether the pod sees the restore point before it starts its worker."""
    if box.blind or box.unmounted:
        return False
    if any(one.name == tier and is_directory(one) for one in tiers(u.spec)):
        return u.disk.marker(tier, step) is not None
    return any((one.tier, one.where, one.step) == (tier, SHARED_DIRECTORY, step) and one.line for one in u.disk.files)


def places(u: Universe, status: Status) -> Iterator[tuple[str, Rank]]:
    """The pod that will run each rank of the attempt."""
    numbering = number_places(roles_of(u.spec, status))
    held = holders(u.spec, status)
    for group, members in numbering.groups.items():
        for place in members:
            member = held[place]
            number = incarnation(status, member)
            pods = [uid for uid, box in u.boxes.items() if (box.member, box.incarnation) == (member, number)]
            uid = next((uid for uid in pods if uid in u.pods), pods[0] if pods else "")
            yield from ((uid, (group, rank)) for rank in numbering.ranks[place])


def loadable(u: Universe, status: Status, tier: Tier, step: int) -> dict[tuple[str, Rank], File | None]:
    """What each rank of the attempt loads from its pod; None = nothing is there.

    In a Peers tier a rank without its own part gets a copy. All parts of a step are of one attempt, so a copy that is
    older than any part of the step is left alone.
    """
    ranks = list(places(u, status))
    files = {(pod, rank): u.disk.at(tier.name, where(tier, pod), step, rank) for pod, rank in ranks}
    if tier.reshardable and u.disk.marker(tier.name, step) is not None:
        written = [
            one for one in u.disk.files if (one.tier, one.where, one.step) == (tier.name, SHARED_DIRECTORY, step)
        ]
        return {key: written[at % len(written)] if written else None for at, key in enumerate(files)}
    if tier.scope == "Process":
        return _given(u, tier, step, ranks)
    if tier.scope != "Peers":
        return files
    pods = {pod for pod, _ in ranks}
    there = [
        one for one in u.disk.files if (one.tier, one.step) == (tier.name, step) and one.where in pods and one.line
    ]
    newest = max((one.attempt for one in there), default=0)
    copies = {one.rank: one for one in there if one.attempt == newest}
    return {key: file if file is not None and file.line else copies.get(key[1]) for key, file in files.items()}


def _given(u: Universe, tier: Tier, step: int, ranks: list[tuple[str, Rank]]) -> dict[tuple[str, Rank], File | None]:
    """What each rank has of a step, or gets from a process of its group that has it; None = none has it."""
    local = {key: [rank for pod, rank in ranks if pod == key[0]].index(key[1]) for key in ranks}
    held = [
        File(tier.name, pod, step, rank, proc.attempt, pod, proc.holds)
        for pod, rank in ranks
        if pod in u.boxes
        for proc in (*u.boxes[pod].parked, *u.boxes[pod].procs)
        if proc.local_rank == local[pod, rank] and proc.holds is not None and last_step(proc.holds) == step
    ]
    newest = max((one.attempt for one in held), default=0)  # Who had no part in it may have another history.
    held = [one for one in held if one.attempt == newest]
    own = {(one.where, one.rank): one for one in held}
    return {key: own.get(key, next((one for one in held if one.rank[0] == key[1][0]), None)) for key in ranks}


def is_whole(u: Universe, tier: Tier, step: int) -> bool:
    """Whether every rank's part of this step was written by one history, wherever the parts are."""
    if is_directory(tier):
        return u.disk.marker(tier.name, step) is not None
    ranks = {(group, rank) for _, (group, rank) in places(u, u.status)}
    found = {(file.rank, file.line) for file in u.disk.files if (file.tier, file.step) == (tier.name, step)}
    return any(line and all((rank, line) in found for rank in ranks) for _, line in found)
