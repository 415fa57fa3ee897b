"""Size: with how many members of each elastic role the coming attempt starts.

An elastic role has ``minReplicas``. Its size belongs to the attempt: write 2 fixes it with the ranks, until the next
write 2. A smaller role has fewer places; the members without a place are spares (``api/roles.py``).

    allowed(r) = replicas, and what ``sizes`` has down to minReplicas
    present(r) = the size of the newest attempt that was started; at first what the queue admits, or replicas; in the
                 attempt that a stop to grow leads to, the largest that connected members fit; and where the queue takes
                 quota back meanwhile (``quota.py``), what is left fits
    top(r)     = replicas, where the gang may grow; present(r) else
    fits(r)    = the largest allowed size <= min(top(r), ready members of r, spares among them)
    size(r)    = fits(r)      if fits(r) >= present(r), or shrinkAfterSeconds are over since the attempt gathers,
                              since the last member was lost, since the cluster accepts the gang's pods, since the
                              last pod came to its node that has not started yet, and, if all pods are new, since the
                              first was ready
                 present(r)   else: it is waited for

    may grow  <=> a stop or a user asks for this attempt so that it grows, or now >= grows_at and no tier is in memory,
                  whose newer steps another size could not load: then a stop to grow waits for a Shared one
    grows_at   = max(begin of the present size, the last stop to grow) + growAfterSeconds * 2^(such stops in an hour),
                 and not before an hour after the fourth last of them

The rule: spares come first, and no replacement is waited for beyond shrinkAfterSeconds while an allowed size is ready.
A gang at its least size that loses one more member waits. What must not happen: two sizes in one attempt; a size that
is not allowed; more than ``MAX_STOPS`` stops an hour to grow, however often a node comes and goes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from gangctl.api.gangjob import Role, Spec
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import ListedSizes
from gangctl.api.status import ConditionType, GangPhase, RoleSize, Size, Status
from gangctl.core.facts.fitness import ready
from gangctl.core.facts.gang import Gang, once
from gangctl.words.decisions import starts_smaller
from gangctl.words.message import Message
from gangctl.words.waits import starts_smaller_at, too_small

HOUR_SECONDS: Final = 3600.0
MAX_STOPS: Final = 4
"""Stops to grow within an hour: so many times at most a node that comes and goes costs a restart by its coming."""


def elastic_roles(spec: Spec) -> tuple[Role, ...]:
    """The roles whose attempts may have fewer members than replicas."""
    return tuple([role for role in spec.roles if role.min_replicas is not None])


def allowed_sizes(role: Role) -> tuple[int, ...]:
    """How many members an attempt may have of the role, largest first."""
    most, least = role.replicas, role.replicas if role.min_replicas is None else role.min_replicas
    match role.sizes:
        case ListedSizes(counts=counts):
            return tuple(sorted({most, least, *(one for one in counts if least <= one <= most)}, reverse=True))
        case steps:
            return tuple(range(most, least - 1, -steps.step))


def present_sizes(gang: Gang) -> dict[str, int]:
    """Elastic role -> the size of the newest attempt that was started."""
    return {role.name: role.replicas for role in gang.roles if role.min_replicas is not None}


def coming_sizes(gang: Gang) -> Mapping[str, int]:
    """Elastic role -> the size of the coming attempt, or its present size while that is waited for."""
    elastic = elastic_roles(gang.spec)
    there = Counter(gang.members[name].role.name for name in ready(gang))
    sizes, is_late, grows = present_sizes(gang), gang.now >= shrinks_at(gang), _may_grow(gang)
    here = Counter(gang.members[name].role.name for name in gang.speaking) if _is_stopped_to_grow(gang) else {}
    for role in elastic:
        present = max(sizes[role.name], largest_fit(role, here.get(role.name, 0)))
        present = min(present, largest_fit(role, with_quota(gang, role)) or present)  # The queue may take some back.
        fits = largest_fit(role, min(role.replicas if grows else present, there[role.name]))
        sizes[role.name] = fits if fits >= present or (fits > 0 and is_late) else present
    return sizes


def largest_fit(role: Role, most: int) -> int:
    """The largest allowed size up to ``most``; 0 if none is."""
    return next((one for one in allowed_sizes(role) if one <= most), 0)


def with_quota(gang: Gang, role: Role) -> int:
    """How many members of the role may have a pod, spares included."""
    return role.replicas + role.spares - sum(gang.members[name].role.name == role.name for name in gang.without_quota)


@once
def shrinks_at(gang: Gang) -> float:
    """Until when the attempt that gathers waits for all members of its present size, unless it can't start anyway.

    A member that is replaced meanwhile has the whole time; one that is replaced again and again has it once.
    """
    lost = [one.since or one.time for name, one in gang.replaced.items() if name in gang.fresh]
    accepted = gang.status.condition(ConditionType.ACCEPTED)
    if accepted is not None and accepted.status == "True":  # Pods that were refused come one after the other.
        lost.append(accepted.last_transition_time)
    # A pod that came to a node late has as long to start; one that is replaced again and again hasn't.
    missing = (pod for name, pod in gang.pods.items() if name not in gang.replaced and name not in gang.speaking)
    lost += [pod.scheduled_at for pod in missing if pod.scheduled_at is not None]
    if gang.status.phase is GangPhase.PENDING:  # Images may take long: as long as the first of all needs.
        lost += [min([gang.heard_by_member[name].phase_since for name in ready(gang)], default=0.0)]
    since = max([gang.status.phase_time, gang.observed.listening_since, *lost])
    return since + gang.spec.recovery.shrink_after_seconds


def could_start(gang: Gang, members: Iterable[str]) -> bool:
    """Whether these members fill an allowed size of each role."""
    there = Counter(gang.members[name].role.name for name in members)
    return all(largest_fit(role, there[role.name]) for role in gang.spec.roles)


def outlook(gang: Gang) -> Message | None:
    """Return when an attempt that waits for members starts without them, or why it can't; None if neither is so."""
    there = Counter(gang.members[name].role.name for name in ready(gang))
    lacking = next((one for one in elastic_roles(gang.spec) if not largest_fit(one, there[one.name])), None)
    if lacking is not None:
        return too_small(lacking.name, allowed_sizes(lacking)[-1])
    at = shrinks_at(gang)
    return starts_smaller_at(at) if gang.now < at and could_start(gang, ready(gang)) else None


def grows_at(gang: Gang) -> float:
    """From when on a smaller gang may be stopped so that it grows."""
    size, stops = gang.status.size or Size(), recent_stops(gang)
    at = max([size.time, *stops]) + gang.spec.recovery.grow_after_seconds * 2.0 ** len(stops)
    return max(at, stops[-MAX_STOPS] + HOUR_SECONDS) if len(stops) >= MAX_STOPS else at


def recent_stops(gang: Gang) -> list[float]:
    """When the gang was stopped to grow within the last hour."""
    return [] if gang.status.size is None else [at for at in gang.status.size.stops if at > gang.now - HOUR_SECONDS]


def _may_grow(gang: Gang) -> bool:
    status = gang.status
    asked = status.incidents[:1] if status.size is not None else ()
    by_hand = any(one.attempt == status.attempt and one.cause.reason == Reason.RESTART_REQUESTED for one in asked)
    tiers = () if gang.spec.checkpoint is None else gang.spec.checkpoint.tiers
    has_memory = any(one.scope != "Shared" and not one.reshardable for one in tiers)
    return by_hand or _is_stopped_to_grow(gang) or (gang.now >= grows_at(gang) and not has_memory)


def _is_stopped_to_grow(gang: Gang) -> bool:
    size = gang.status.size
    return size is not None and size.growing_attempt == gang.status.attempt


def size_of_attempt(gang: Gang, assignment: Mapping[str, str]) -> Size | None:
    """What write 2 stores of the size. ``assignment``: place of the coming attempt -> member."""
    before, present = gang.status.size, present_sizes(gang)
    coming = Counter(gang.members[place].role.name for place in assignment)
    if all(coming[name] == size for name, size in present.items()):
        return before
    elastic = elastic_roles(gang.spec)
    small = [role for role in elastic if coming[role.name] < role.replicas]
    taken = any(with_quota(gang, role) < present[role.name] for role in elastic)
    lost = not taken and any(coming[name] < present[name] for name in present)
    waited, queue = gang.spec.recovery.shrink_after_seconds if lost else 0, gang.observed.queue.name if taken else ""
    return smaller_size(gang, changed(before or Size(), asked_time=0.0, given_time=0.0), small, coming, waited, queue)


def smaller_size(
    gang: Gang, before: Size, small: Iterable[Role], sizes: Mapping[str, int], waited: int = 0, queue: str = ""
) -> Size:
    """The size from this attempt on. ``waited``: seconds for more members; ``queue``: the one that gives no more."""
    roles = tuple([RoleSize(name=role.name, members=sizes[role.name]) for role in small])
    texts = [str(starts_smaller(role.name, sizes[role.name], role.replicas, waited, queue)) for role in small]
    return changed(before, attempt=gang.status.attempt, time=gang.now, roles=roles, reason=", ".join(texts))


def started_anew(status: Status) -> Size | None:
    """The size of a gang that is resumed, with all members; what it saved at another size is known as that."""
    return None if status.size is None else Size(attempt=status.attempt + 1)
