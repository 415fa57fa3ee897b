"""Which rule an incident was judged by, and at which level, in words."""

from __future__ import annotations

from typing import Final

from gangctl.api.incident import Incident, IncidentLevel

_LEVELS: Final = {
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


def level_words(level: IncidentLevel, outcome: str) -> str:
    """The level, and what it replaces unless the gang has ended or rests instead."""
    return f"{level} ({_LEVELS[level]})" if outcome in {"Open", "Restarted"} else str(level)
