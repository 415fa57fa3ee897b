"""The attributes of an incident's root span. Pure."""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, WarmStart

Value = str | int | float | bool
Attributes = tuple[tuple[str, Value], ...]


def root_attributes(job: GangJob, incident: Incident) -> Attributes:
    """Those of the incident itself."""
    cause = incident.cause
    return known(
        [
            ("gang.name", job.metadata.name),
            ("gang.namespace", job.metadata.namespace),
            ("gang.uid", job.metadata.uid),
            ("gang.attempt.from", incident.attempt - 1),
            ("gang.attempt.to", incident.attempt),
            ("gang.cause.reason", cause.reason),
            ("gang.cause.message", cause.seen() or None),
            ("gang.cause.member", cause.member or None),
            ("gang.cause.rank", cause.rank),
            ("gang.cause.exit_code", cause.exit_code),
            ("gang.cause.signal", cause.signal),
            ("gang.cause.node", cause.node),
            ("gang.cause.device", cause.device),
            ("gang.cause.rule", cause.rule),
            ("gang.level", str(incident.level)),
            ("gang.outcome", incident.outcome),
            ("gang.charged", incident.charged),
            ("gang.planned", incident.planned),
            ("gang.restored_step", incident.restored_step),
            ("gang.lost_steps", incident.lost_steps),
            ("gang.lost_steps_at_most", incident.lost_steps_at_most),
            ("gang.lost_seconds", incident.lost_seconds),
            *_start_attributes(incident.warm_start),
        ]
    )


def _start_attributes(warm: WarmStart | None) -> list[tuple[str, Value | None]]:
    if warm is None:
        return []
    return [
        ("gang.start.forked", warm.forked),
        ("gang.start.executed", warm.executed),
        ("gang.start.went_on", warm.went_on or None),
        ("gang.start.obstacle", warm.obstacle or None),
    ]


def known(attributes: list[tuple[str, Value | None]]) -> Attributes:
    """Without those that have no value."""
    return tuple((key, value) for key, value in attributes if value is not None)
