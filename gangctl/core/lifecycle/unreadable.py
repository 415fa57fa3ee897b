"""Unreadable: what is told of a gang that this release can't read. Nothing else is decided about it."""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.words import decisions


def unreadable(why: str) -> Event:
    """Return the Event. ``why``: what is wrong with it, in a sentence."""
    return Event(EventType.WARNING, Reason.UNREADABLE, decisions.unreadable(why))
