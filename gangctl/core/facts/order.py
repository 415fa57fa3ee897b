"""Order: which roles of an attempt that runs may start, and for whom they wait.

    waits(r)     = r depends on roles, and the status doesn't name r among those that may start in this attempt
    ready(m)     = m has finished, or runs its worker in this attempt, and its pod is Ready, and not from before
    from before  = the worker's container has a readiness probe that has not passed since the worker started, nor has
                   had the time to fail: failureThreshold * periodSeconds + timeoutSeconds, and a margin
    may_start(r) <=> waits(r), and ready(m) for each required member m of each role that r depends on

The rule: a role starts when the status says so, and then it may for the whole attempt. A member of a role must not run
in an attempt before each required member of the roles that it depends on has run in it. A pod's condition Ready may be
that of the attempt before: workers restart in less time than a kubelet takes from one probe to the next. The barrier
knows no order: who waits here counts there among those that may run a worker.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from gangctl.api.gangjob import Role
from gangctl.api.model import changed
from gangctl.api.status import GangPhase, StartedRoles, Status
from gangctl.core.facts.gang import Gang, once, started_roles, waiting_roles
from gangctl.core.facts.progress import finished_places
from gangsidecar.wire import Phase

MARGIN_SECONDS: Final = 5.0
"""A kubelet's word that a probe has failed is seen sooner than this."""


class Awaited(NamedTuple):
    """For whom roles wait."""

    roles: tuple[str, ...]
    """Roles that wait."""
    starts: tuple[str, ...]
    """Members whose workers don't run yet."""
    probes: tuple[str, ...]
    """Members that run, and whose pods aren't ready as far as is known."""
    until: float | None
    """When the first of these is ready if its pod stays so; None if time alone tells nothing."""


def roles_that_wait(gang: Gang) -> frozenset[str]:
    """The roles that wait in the attempt that runs; none while no attempt does."""
    running = gang.status.phase is GangPhase.RUNNING
    return waiting_roles(gang.spec, gang.status) if running else frozenset()


@once
def members_that_wait(gang: Gang) -> frozenset[str]:
    """The members that hold a place of these roles."""
    waiting = roles_that_wait(gang)
    held = gang.holders.items() if waiting else ()
    return frozenset([member for place, member in held if gang.places[place].role.name in waiting])


def roles_to_start(gang: Gang) -> tuple[str, ...]:
    """The roles that may start now."""
    waiting, unready = roles_that_wait(gang), _unready(gang)
    roles = (role for role in gang.spec.roles if role.name in waiting)
    return tuple([role.name for role in roles if not any(unready[one.name] for one in role.depends_on)])


def with_started(gang: Gang, roles: Iterable[str]) -> Status:
    """The status that says that these roles may start too."""
    names = (*started_roles(gang.status), *roles)
    return changed(gang.status, started_roles=StartedRoles(attempt=gang.status.attempt, time=gang.now, roles=names))


def awaited(gang: Gang) -> Awaited | None:
    """For whom roles wait; None if none does. A role that waits itself isn't waited for until its own turn."""
    waiting = roles_that_wait(gang)
    if not waiting:
        return None
    found = {member: at for name, members in _unready(gang).items() if name not in waiting for member, at in members}
    running = [member for member in found if _runs_worker(gang, member)]
    return Awaited(
        tuple([role.name for role in gang.spec.roles if role.name in waiting]),
        tuple([member for member in found if member not in running]),
        tuple(running),
        min((at for at in found.values() if at is not None), default=None),
    )


@once
def _unready(gang: Gang) -> dict[str, list[tuple[str, float | None]]]:
    """Role that others wait for -> the holders of its places that aren't ready, each with what `_ready_at` says."""
    waiting, done, roles = roles_that_wait(gang), finished_places(gang), {role.name: role for role in gang.spec.roles}
    found: dict[str, list[tuple[str, float | None]]] = {
        one.name: [] for name in waiting for one in roles[name].depends_on
    }
    for place, member in gang.holders.items() if found else ():
        name = gang.places[place].role.name
        if name in found and place not in done:
            at = _ready_at(gang, member, roles[name])
            if at is None or at > gang.now:
                found[name].append((member, at))
    return found


def _ready_at(gang: Gang, member: str, role: Role) -> float | None:
    """When the member is ready if nothing changes, or 0 if it is; None if that can't be told."""
    pod, heard = gang.pods.get(member), gang.heard_by_member.get(member)
    if pod is None or heard is None or not pod.is_ready or not _runs_worker(gang, member):
        return None
    probe = role.worker.readiness_probe
    if probe is None or (pod.ready_at is not None and pod.ready_at >= heard.phase_since):
        return 0.0
    return heard.phase_since + _seconds_to_fail(probe) + MARGIN_SECONDS


def _runs_worker(gang: Gang, member: str) -> bool:
    report = gang.report(member)
    return report is not None and report.phase is Phase.RUNNING and report.attempt == gang.status.attempt


def _seconds_to_fail(probe: dict[str, Any]) -> int:
    """How long a probe that fails takes to say so. Its defaults are those of Kubernetes."""
    times = _number(probe, "failureThreshold", 3) * _number(probe, "periodSeconds", 10)
    return times + _number(probe, "timeoutSeconds", 1)


def _number(probe: dict[str, Any], name: str, default: int) -> int:
    value = probe.get(name)
    return value if isinstance(value, int) and value > 0 else default
