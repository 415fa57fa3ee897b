"""Unreadable: what is told of a gang that this release can't read. Nothing else is decided about it."""

from __future__ import annotations

from gangctl.api.model import sentence
from gangctl.api.reasons import Reason
from gangctl.core.lifecycle.plan import Event, EventType

_BECAUSE = "the controller cannot read this gang, so it leaves it alone: workers train on, and no fault is mended"


def unreadable(why: str) -> Event:
    """The Event. ``why``: what is wrong with it, in a sentence."""
    return Event(EventType.WARNING, Reason.UNREADABLE, sentence(f"{_BECAUSE}. {why}"))
