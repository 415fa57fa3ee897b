"""Which members kept the stop signal for themselves, so that the restart waited for the whole grace.

The rule: a member kept it if its supervisor, Ready for the stored attempt, reports when SIGKILL came in that stop. No
decision may depend on it. A member whose worker ended within the grace must not be named.
"""

from __future__ import annotations

from gangctl.api.incident import Incident, KeptSignal
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.text import counted
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


def advice(incident: Incident) -> str:
    """What was seen and what to do, in sentences; empty if no worker kept the signal."""
    kept = incident.kept_signal
    if kept is None:
        return ""
    others = f" and {counted(kept.members - 1, 'other member')}" if kept.members > 1 else ""
    field = "plannedStopGracePeriodSeconds" if incident.planned else "stopGracePeriodSeconds"
    return (
        f"The workers of {kept.member}{others} did not stop in time and were killed after "
        f"{kept.milliseconds / 1000:g} s, for which the restart waited. Let the script end on SIGTERM (for JAX, set "
        f"jax_enable_preemption_service to False) or, with gangclient.run, see in the worker's log where it was. Or "
        f"lower recovery.{field}."
    )
