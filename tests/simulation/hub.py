"""The hub of a simulated controller: it takes reports, and tells members what follows from the stored status."""

from __future__ import annotations

from dataclasses import replace

from gangctl.controller.reports import SAME_SECONDS, substance
from gangctl.core.facts.world import NO_GAPS, Heard, gaps
from gangctl.core.lifecycle.directive import Begun, Directives
from gangsidecar.supervisor import machine
from gangsidecar.wire import Phase, Ping, Report, Scanned, aged
from tests.simulation import invariants, sidecars, truth
from tests.simulation.universe import Universe
from tests.simulation.values import Ended, Leader, Up, seconds


def receive(u: Universe, uid: str, up: Up) -> None:
    """The hub takes a message of a member: of reports only one that is newer than the last on this connection."""
    box = u.boxes[uid]
    assert box.link is not None
    leader = u.leaders[box.link]
    if isinstance(up.body, Scanned):
        at = seconds(u.clock(leader))
        u.boxes[uid] = box._replace(held=tuple(one for one in box.held if one[0] != up.body))
        is_news = up.body != leader.scanned or at >= leader.scanned_at + SAME_SECONDS
        u.leaders[leader.number] = leader._replace(scanned=up.body, scanned_at=at, dirty=leader.dirty or is_news)
        return
    orders = dict(leader.orders)
    if not u.engine.searching:
        if up.order <= orders.get(uid, 0):
            return
        orders[uid] = up.order
    report: Report = aged(up.body, u.now - up.sent)
    before = next((one for one in leader.heard if one.report.pod == uid), None)
    at = seconds(u.clock(leader))
    newest = _heard(u, before, report, at)
    heard = {one.report.pod: one for one in leader.heard} | {uid: newest}
    u.leaders[leader.number] = leader._replace(
        heard=tuple(heard[pod] for pod in sorted(heard)),
        orders=tuple(sorted(orders.items())),
        dirty=leader.dirty or before is None or not before.connected or substance(before.report) != substance(report),
        ends=_ends(u, leader, report),
    )
    truth.note_gap(u, leader, before, newest)
    if box.silent and invariants.is_lost(u, uid):
        u.ghost = u.ghost._replace(lost=u.ghost.lost | {uid})
    u.boxes[uid] = box._replace(heard_at=u.now, silent=False)
    runs = report.phase is Phase.RUNNING and report.attempt == u.ghost.ran[0]
    if runs and report.session not in dict(u.ghost.heard):
        u.ghost = u.ghost._replace(heard=(*u.ghost.heard, (report.session, u.now)))
    if before is not None and before.report.session != report.session:
        u.boxes[uid] = u.boxes[uid]._replace(told=None)
    if u.spec.recovery.isolation_timeout_seconds is not None and not (box.silent or (before and before.connected)):
        sidecars.tell(u, uid, Ping(report.sent_ms))
    tell(u, leader.number, uid)


def tell_all(u: Universe, number: int) -> None:
    """Every connected member gets the directive that follows from the stored status and its report."""
    begun(u, number)
    for uid, box in list(u.boxes.items()):
        if box.link == number:
            tell(u, number, uid)


def begun(u: Universe, number: int) -> Begun:
    """What the attempt began with, as this controller knows."""
    leader = u.leaders[number]
    known = leader.begun
    if known is None or not known.is_same(leader.status):
        known = Begun.of(u.job_of(leader.spec, leader.generation, leader.status), leader.pods)
        u.leaders[number] = leader._replace(begun=known)
    return known


def tell(u: Universe, number: int, uid: str) -> None:
    """What one member is told now, unless it was the last thing that it was told."""
    leader, box = u.leaders[number], u.boxes[uid]
    heard = next((one for one in leader.heard if one.report.pod == uid and (one.connected or box.silent)), None)
    if heard is None:
        return
    job = u.job_of(leader.spec, leader.generation, leader.status)
    said = Directives(job, begun(u, number))(heard.report)
    if said is None or said == box.told:
        return
    invariants.told(u, leader, said)
    invariants.runs_in_one_pod(u, box, said)
    u.boxes[uid] = box._replace(told=said)
    sidecars.tell(u, uid, said)


def heard_ms(u: Universe, uid: str) -> int:
    """What a ping to this member returns: the time of its newest report that was heard; 0 = none was."""
    box = u.boxes[uid]
    leader = None if box.link is None else u.leaders.get(box.link)
    heard = () if leader is None else leader.heard
    return next((one.report.sent_ms for one in heard if one.report.pod == uid and (one.connected or box.silent)), 0)


def beat(u: Universe, uid: str) -> None:
    """A supervisor reports all the time. That changes nothing but ages, unless something was lost on the way before."""
    box = u.boxes[uid]
    leader = None if box.link is None else u.leaders[box.link]
    if leader is None or leader.frozen or box.mute or box.up or box.machine is None:
        return
    at, said = seconds(u.clock(leader)), machine.report(box.machine, u.now, box.seq)
    before = next((one.report for one in leader.heard if one.connected and one.report.pod == uid), None)
    if box.silent or (before is not None and substance(before) != substance(said)):
        sidecars.report(u, uid)
        return
    heard = tuple(
        replace(one, report=said, at=at) if one.connected and one.report.pod == uid else one for one in leader.heard
    )
    u.leaders[leader.number] = leader._replace(heard=heard)
    u.boxes[uid] = box._replace(heard_at=u.now)


def _ends(u: Universe, leader: Leader, report: Report) -> tuple[tuple[Ended, int], ...]:
    """The processes that this controller knows to have finished."""
    said = [(end.attempt, report.member, end.local_rank) for end in report.ends if end.exit_code == 0]
    known = {key for key, _ in leader.ends}
    return (*leader.ends, *((key, u.now) for key in said if key in u.ghost.finished and key not in known))


def _heard(u: Universe, before: Heard | None, report: Report, at: float) -> Heard:
    since = before.since if before is not None and before.connected else at
    seen = NO_GAPS if u.spec.progress.adaptive is None else gaps(before, report, at)
    return Heard(report, at, since=since, gaps=seen)
