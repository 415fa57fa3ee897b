"""Sightings: a pod with the times of its changes on this controller's clock, not on others. Pure.

The rule: a node's clock may be hours off, so what it wrote is never believed beyond what this controller saw itself::

    first seen in a list     min(time, now)
    seen to change           min(max(time, now - LAG_SECONDS), now)
    unchanged                as it was seen first

What a node shows is compared with an attempt that this controller began, so what was seen to come came now; of what was
there before, and of a time to come, nothing is known.

A clock that is ahead must delay no deadline. One that is behind must let none pass early: what is first seen in a list
may be older than it says, but deadlines count only the time in which this leader listens.
"""

from dataclasses import replace
from typing import Final

from gangctl.core.facts.world import Pod

LAG_SECONDS: Final = 5.0
"""A watch that works shows a change sooner than this."""


def first_seen(pod: Pod, now: float) -> Pod:
    """The pod as a list shows it first."""
    return replace(
        pod,
        created_at=min(pod.created_at, now),
        scheduled_at=_not_after(pod.scheduled_at, now),
        ready_at=_not_after(pod.ready_at, now),
        started_at=_not_after(pod.started_at, now),
        ended_at=_not_after(pod.ended_at, now),
    )


def seen_again(pod: Pod, before: Pod, seen: Pod, now: float) -> Pod:
    """The pod after a change.

    Args:
        pod: as it is written now.
        before: as it was written before.
        seen: ``before`` as it was seen.
        now: in seconds since the epoch.
    """
    return replace(
        pod,
        created_at=seen.created_at,
        scheduled_at=_seen(pod.scheduled_at, before.scheduled_at, seen.scheduled_at, now),
        ready_at=_seen(pod.ready_at, before.ready_at, seen.ready_at, now),
        started_at=_seen(pod.started_at, before.started_at, seen.started_at, now),
        ended_at=_seen(pod.ended_at, before.ended_at, seen.ended_at, now),
    )


def shown_since(written: float | None, now: float, *, came: bool) -> float:
    """Return since when a node shows something, in seconds since the epoch; 0 if that isn't known.

    Args:
        written: when it came, as its writer says.
        now: when it is seen first.
        came: whether the node was seen before, and did not show it.
    """
    if came:
        return now
    return 0.0 if written is None or written > now else written


def _not_after(time: float | None, now: float) -> float | None:
    return None if time is None else min(time, now)


def _seen(time: float | None, before: float | None, seen: float | None, now: float) -> float | None:
    if time == before:
        return seen
    return None if time is None else min(max(time, now - LAG_SECONDS), now)
