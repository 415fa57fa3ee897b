"""Which members kept the stop signal for themselves, so that the restart waited for the whole grace.

The rule: a member kept it if its supervisor, Ready for the stored attempt, reports when SIGKILL came in that stop. No
decision may depend on it. A member whose worker ended within the grace must not be named.
"""

from __future__ import annotations

from gangctl.api.incident import Incident, KeptSignal
from gangctl.core.facts.gang import Gang
from gangctl.words.decisions import signal_kept
from gangctl.words.message import Message
from gangsidecar.wire import Phase


def kept_signal(gang: Gang) -> KeptSignal | None:
    """Who kept it in the stop before the stored attempt; None if none did, as far as reports show."""
    kept = [
        (-heard.report.killed_ms, member)
        for member, heard in gang.heard_by_member.items()
        if heard.report.killed_ms is not None
        and (heard.report.phase, heard.report.attempt) == (Phase.READY, gang.status.attempt)
    ]
    if not kept:
        return None
    longest, member = min(kept)
    return KeptSignal(member=member, members=len(kept), milliseconds=-longest)


def advice(incident: Incident) -> Message | None:
    """Return what was seen and what to do, in sentences; None if no worker kept the signal."""
    kept = incident.kept_signal
    if kept is None:
        return None
    return signal_kept(kept.member, kept.members - 1, kept.milliseconds / 1000, incident.planned)
