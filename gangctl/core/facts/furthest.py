"""The rank of a member that is furthest behind its other ranks, as the member's sidecar tells.

    left_behind(m) = another rank of m has made a step beyond the one that this rank's next report is due for

A rank that has ended is not behind: it reports no more. Which rank that is, is asked of the ends that its supervisor
reports, since the sidecar doesn't know of them.
"""

from __future__ import annotations

from gangctl.core.facts.world import Heard
from gangsidecar.wire import RankBehind


def furthest(heard: Heard) -> RankBehind | None:
    """The rank with the lowest step of those that go on; None if all have made the same, or if that isn't known."""
    progress = heard.report.progress
    last = None if progress is None or progress.uncounted else progress.behind
    if progress is None or last is None or last.step >= progress.step:
        return None
    ended = any((end.attempt, end.rank) == (progress.attempt, last.rank) for end in heard.report.ends)
    return None if ended else last


def left_behind(heard: Heard) -> RankBehind | None:
    """The same if it is further behind than its next report is due; None while that isn't known."""
    progress, last = heard.report.progress, furthest(heard)
    if progress is None or last is None or progress.every is None:
        return None
    return last if progress.step > last.step + progress.every else None
