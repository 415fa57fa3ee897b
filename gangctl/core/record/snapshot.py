"""A snapshot: what the controller knows of a gang this moment, beyond what is worth a status write.

Steps are reported many times a second and stored every half minute; a user who watches wants to see them move.
"""

from collections.abc import Sequence
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.roles import Member, Numbering, number_places
from gangctl.api.status import ENDED, MemberSnapshot, Snapshot
from gangctl.core.facts.gang import Gang, roles_of
from gangctl.core.facts.progress import need_no_pod
from gangctl.core.facts.world import Observed
from gangctl.core.record.conditions import record_progress, update_summary
from gangctl.core.record.timings import set_timings
from gangctl.words.decisions import unstored
from gangsidecar.wire import Phase, Report

_READY: Final = frozenset({"Ready", "Running"})
_ENDED: Final = "Ended"


def snapshot(now: float, job: GangJob, observed: Observed) -> Snapshot:
    """The gang at this moment. ``now``: seconds since the epoch."""
    gang = Gang(now, job, observed)
    status = job.status
    if status.phase not in ENDED:
        status = update_summary(gang, record_progress(gang, set_timings(gang, status, more=True)))
    numbering = number_places(roles_of(job.spec, job.status))
    places = {holder: place for place, holder in gang.holders.items()}
    members = tuple(_member(gang, member, places, numbering) for member in gang.members.values())
    if observed.unstored:
        status = changed(status, message=str(unstored(observed.unstored)), ready=_ready(members))
    return Snapshot(
        name=job.metadata.name,
        uid=job.metadata.uid,
        generation=job.metadata.generation,
        time=now,
        status=status,
        members=members,
        unstored=observed.unstored,
    )


def _ready(members: Sequence[MemberSnapshot]) -> str:
    """How many members are ready or run: one whose worker has ended is connected, and no restart follows."""
    needed = [one for one in members if not one.spare]
    return f"{sum(one.connected and one.phase in _READY for one in needed)}/{len(needed)}"


def _member(gang: Gang, member: Member, places: dict[str, str], numbering: Numbering) -> MemberSnapshot:
    place = places.get(member.name)
    pod, report = gang.pods.get(member.name), gang.report(member.name)
    heard = gang.heard_by_member.get(member.name)
    ranks = () if place is None else numbering.ranks.get(place, ())
    return MemberSnapshot(
        member=member.name,
        role=member.role.name,
        pod="" if pod is None else pod.name,
        incarnation=gang.incarnation(member.name),
        rank=ranks[0] if ranks else None,
        spare=place is None,
        connected=gang.connected(member.name),
        finished=member.name in need_no_pod(gang),
        terminated=pod is not None and pod.terminated,
        phase="" if report is None else _ENDED if _has_ended(report) else report.phase.value,
        attempt=0 if report is None else report.attempt,
        step=None if heard is None or heard.step_attempt != gang.status.attempt else heard.step,
        restarts=0 if pod is None else pod.restarts,
    )


def _has_ended(report: Report) -> bool:
    """Whether a process of the worker has ended, and the supervisor waits for what is decided about it."""
    return report.phase is Phase.RUNNING and any(end.attempt == report.attempt for end in report.ends)
