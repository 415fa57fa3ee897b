"""The size of attempts, as it really was.

Invariant 18 is asserted here. All workers of an attempt have one world, of the size that its write 2 fixed, which is an
allowed one. An attempt is smaller than the one before only after shrinkAfterSeconds with a leader, and is stopped to
grow at most ``STOPS`` times an hour, while a member waits to join and a step of it is saved. What isn't reshardable is
loaded only by the size that wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangctl.api.reasons import Reason
from gangctl.api.roles import layout, number_places
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import holders, incarnation, roles_of
from gangsidecar.supervisor import machine
from gangsidecar.wire import Phase
from tests.simulation import disks, queues
from tests.simulation.values import Box, Leader
from tests.simulation.violations import require

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

STOPS: Final = 4
HOUR_MS: Final = 3_600_000


def stored(u: Universe, leader: Leader, old: Status, new: Status) -> None:
    """18: what a write makes of the size."""
    sizes = {role.name: role.replicas for role in roles_of(u.spec, new)}
    before = {role.name: role.replicas for role in roles_of(u.spec, old)}
    starts = new.phase is GangPhase.RUNNING and old.phase is not GangPhase.RUNNING
    resumes = new.resumed_attempt > old.resumed_attempt
    is_new = old.phase is GangPhase.NEW
    require(
        starts or resumes or is_new or sizes == before, 18, f"the size changes from {before} to {sizes} in an attempt"
    )
    if starts:
        _started(u, leader, new, sizes, before)
    opened = new.incidents[:1] if new.attempt > old.attempt else ()
    if any((one.attempt, one.cause.reason) == (new.attempt, Reason.GROWING) for one in opened):
        _grows(u, leader, old)


def _started(u: Universe, leader: Leader, new: Status, sizes: dict[str, int], before: dict[str, int]) -> None:
    for role in leader.spec.roles:
        least = role.replicas if role.min_replicas is None else role.min_replicas
        require(least <= sizes[role.name] <= role.replicas, 18, f"{role.name} starts with {sizes[role.name]} members")
    smaller = any(sizes[name] < before[name] for name in sizes)
    known = u.phase_skew == leader.skew or u.phase_at <= leader.began
    waited = (u.now - max(u.phase_at, leader.began)) / 1000
    seconds = leader.spec.recovery.shrink_after_seconds
    kept = {role.name: role.replicas + role.spares - without_quota(new, role.name) for role in leader.spec.roles}
    taken = any(kept[name] < before[name] for name in sizes if without_quota(u.status, name))
    require(not (smaller and known) or taken or waited >= seconds, 18, f"it shrinks after {waited} s")
    for role in leader.spec.roles if leader.queue.name and leader.queue.known else ():
        has = queues.granted(leader.queue, role, held=True)
        require(sizes[role.name] <= has, 18, f"{role.name} starts with {sizes[role.name]} members, and quota for {has}")
    if sizes != before and new.restore_point is not None and new.restore_point.tier == "live":
        u.power["an attempt of another size restored what processes held"] += 1
    if smaller or sizes != before:
        u.power["an attempt is smaller" if smaller else "an attempt is larger"] += 1
    places = len(layout(roles_of(leader.spec, new)).places)
    u.ghost = u.ghost._replace(sizes=(*u.ghost.sizes, (new.attempt, places)))
    point = new.restore_point
    tier = next((one for one in disks.tiers(u.spec) if point is not None and one.name == point.tier), None)
    if tier is not None and point is not None and not tier.reshardable:
        known_sizes = dict(u.ghost.sizes)
        files = disks.loadable(u, new, tier, point.step).values()
        wrote = {known_sizes[one.attempt] for one in files if one is not None and one.line}
        require(wrote <= {places}, 18, f"{places} members load step {point.step} of {tier.name}, which {wrote} wrote")


def without_quota(status: Status, role: str) -> int:
    """How many members of the role have no pod for want of quota."""
    return sum(one.without_quota is True and one.member.rpartition("-")[0] == role for one in status.replaced)


def _grows(u: Universe, leader: Leader, old: Status) -> None:
    u.power["a gang was stopped to grow"] += 1
    recent = [at for at in u.ghost.grown if at > u.now - HOUR_MS]
    require(u.skew or leader.skew or len(recent) < STOPS, 18, f"it is stopped to grow {len(recent) + 1} times an hour")
    u.ghost = u.ghost._replace(grown=(*recent, u.now))
    require(why_grows(u, leader, old), 18, "it is stopped to grow, and no member waits, or no step is saved")


def why_grows(u: Universe, leader: Leader, old: Status) -> str:
    """Why a gang that runs is stopped to grow, as it really is; empty: nothing asks for it."""
    held = set(holders(leader.spec, old).values())
    idle = [
        one.report.member
        for one in leader.heard
        if one.report.phase is Phase.READY
        and one.report.member not in held
        and one.report.incarnation == incarnation(old, one.report.member)
    ]
    least = 0 if old.restore_point is None else old.restore_point.step
    shown = [one.step for one in (() if leader.scanned is None else leader.scanned.found)]
    saved = max((step for step in shown if disks.last_step(u.ghost.trunk) >= step), default=0)
    return f"{idle} wait to join, and step {saved} is saved" if idle and saved > least else ""


def spawned(u: Universe, box: Box, effect: machine.Spawn) -> None:
    """18: what a worker is told of its world is what write 2 of its attempt fixed."""
    if effect.attempt != u.status.attempt or u.status.phase is not GangPhase.RUNNING:
        return
    numbering, group = number_places(u.roles), u.group_of(box.member)
    if group not in numbering.groups:
        return
    for process in effect.run.processes:
        world = dict(process.env).get("WORLD_SIZE")
        wanted = str(numbering.world_size(group))
        require(world in {None, wanted}, 18, f"{box.pod} starts in a world of {world}, and others of {wanted}")
        require(process.rank is None or process.rank < int(wanted), 18, f"{box.pod} has rank {process.rank}")
