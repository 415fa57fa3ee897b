"""How long the phases of an incident took.

The rule: each phase begins where the one before it ended, and all are told on the controller's clock from the ages in
reports. Once the first step is stored, nothing is added. Never is a duration negative, whatever the clocks do.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.status import GangPhase, Incident, PhaseMilliseconds, Status
from gangctl.core import slowest
from gangctl.core.gang import Gang
from gangctl.core.world import Heard
from gangsidecar.wire import Phase

TELLING_SECONDS: Final = 10.0
"""So long after the first of them, members are waited for to say when they made their first step. The phase ends with
the last of those that have said so: the recovery isn't over while somebody is still waited for."""


def milliseconds(seconds: float) -> int:
    """As they are stored: never negative."""
    return max(0, round(seconds * 1000))


def settled(gang: Gang, incident: Incident, gathered: list[slowest.Gathered]) -> PhaseMilliseconds:
    """Stop: until the last process of the kept pods was gone. Replace: until the last new pod was ready after that.

    Barrier: what was waited for beyond both.
    """
    stops, replaced, fresh = [incident.time], [incident.time], False
    for _, is_fresh, ready in gathered:
        fresh = fresh or is_fresh
        if ready is not None:
            (replaced if is_fresh else stops).append(ready)
    stopped = min(max(stops), max(gang.now, incident.time))
    ready_again = min(max(stopped, *replaced), max(gang.now, stopped))
    return incident.milliseconds.model_copy(
        update={
            "stop": milliseconds(stopped - incident.time),
            "replace": milliseconds(ready_again - stopped) if fresh else None,
            "barrier": milliseconds(gang.now - ready_again),
        }
    )


def timed(gang: Gang, status: Status, *, more: bool) -> Status:
    """The status with the timings of its last incident, as far as the members have told them.

    ``more``: the attempt goes on, so members that haven't told yet when they made their first step are waited for.
    """
    last = status.incidents[0] if status.incidents else None
    if (
        last is None
        or last.attempt != status.attempt
        or last.outcome != "Restarted"
        or last.milliseconds.first_step is not None
        or gang.status.phase is not GangPhase.RUNNING
    ):
        return status
    told = {holder: heard for holder in gang.holders.values() if (heard := _heard(gang, holder)) is not None}
    runs = {holder: heard for holder, heard in told.items() if heard.report.phase is Phase.RUNNING}
    began = last.settled_time or last.time
    took, members = last.milliseconds, last.members
    if took.start is None:
        if len(runs) < len(gang.holders):
            return status
        started = max(_phase_since(heard) for heard in runs.values())
        took = took.model_copy(update={"start": milliseconds(started - began)})
        members = slowest.started(gang, last, runs)
    firsts = {holder: at for holder, heard in told.items() if (at := slowest.first_step_at(heard)) is not None}
    heard_out = len(firsts) == len(gang.holders) or gang.now >= min(firsts.values(), default=gang.now) + TELLING_SECONDS
    waits = more and not (firsts and heard_out)
    if firsts and not waits:
        first = max(firsts.values()) - began - (took.start or 0) / 1000
        took = took.model_copy(update={"first_step": milliseconds(first)})
    if not waits:
        members = slowest.stepped(gang, last.model_copy(update={"members": members}), told)
    update = {"milliseconds": took, "members": members}
    return status.model_copy(update={"incidents": (last.model_copy(update=update), *status.incidents[1:])})


def _heard(gang: Gang, holder: str) -> Heard | None:
    """What the holder's supervisor said last, if it is of the status' attempt."""
    pod = gang.pods.get(holder)
    heard = None if pod is None else gang.heard.get(pod.uid)
    return heard if heard is not None and heard.report.attempt == gang.status.attempt else None


def _phase_since(heard: Heard) -> float:
    return heard.at - heard.report.phase_age_ms / 1000
