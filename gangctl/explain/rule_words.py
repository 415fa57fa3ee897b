"""Which rule an incident was judged by, and what its level means, in words."""

from __future__ import annotations

from typing import Final

from gangctl.api.incident import Incident, IncidentLevel

LEVELS: Final = {
    IncidentLevel.PROCESS: "every worker restarts inside its pod",
    IncidentLevel.CONTAINER: "the container of the member restarts, and every worker",
    IncidentLevel.POD: "the pod is replaced, the other workers restart inside their pods",
    IncidentLevel.GANG: "every pod is replaced",
}


def judged_by(incident: Incident) -> str:
    """The begin of a sentence that goes on with the level."""
    if incident.planned:
        return "The stop was planned, with time for a last checkpoint"
    rule = incident.cause.rule
    return f"Rule {rule} of podFailurePolicy matched" if rule else "No rule of podFailurePolicy matched"
