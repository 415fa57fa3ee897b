"""Which rule an incident was judged by, in words."""

from __future__ import annotations

from gangctl.api.incident import Incident


def judged_by(incident: Incident) -> str:
    """The begin of a sentence that goes on with the level."""
    if incident.planned:
        return "The stop was planned, with time for a last checkpoint"
    rule = incident.cause.rule
    return f"Rule {rule} of podFailurePolicy matched" if rule else "No rule of podFailurePolicy matched"
