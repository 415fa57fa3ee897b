"""Bars and incidents in words."""

from __future__ import annotations

from collections.abc import Iterator

from gangctl.explain.durations import took
from gangctl.explain.lost_steps import lost_steps
from gangctl.explain.timeline.model import MEANINGS, Bar, Episode


def of_bar(bar: Bar) -> str:
    """What a bar shows."""
    attempt = f"attempt {bar.attempt}: " if bar.attempt else ""
    return f"{attempt}{MEANINGS[bar.kind]}, {took(bar.seconds)}{' so far' if bar.goes_on else ''}"


def of_incident(one: Episode) -> str:
    """How long an incident took, what it cost and what it was."""
    return ", ".join(_parts(one))


def _parts(one: Episode) -> Iterator[str]:
    yield f"{took(one.seconds)}{' so far' if one.goes_on else ''}"
    if one.restored:
        yield f"from {one.restored}"
    elif not one.goes_on:
        yield one.outcome.lower()
    if one.lost_steps is not None:
        yield f"{lost_steps(one.lost_steps, one.lost_steps_at_most)} lost"
    yield one.cause
