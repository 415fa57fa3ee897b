"""The story of a replica group: a row for each gang on one axis, and how long at least one of them ran. Pure.

The rule: each gang is as in its own story. Before it was created and after it has ended, it didn't run.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gangctl.api.status import Spent
from gangctl.core.record.conditions import goodput
from gangctl.story.bars import Bar, Row, merged
from gangctl.story.phases import Activity
from gangctl.story.timeline import Story

_RUNS = {Activity.RUNNING, Activity.LOST}


def group_story(group: str, found: Sequence[Story]) -> Story:
    """Return the story of the gangs of a group, at least one, in this order."""
    begin, end = min(one.begin for one in found), max(one.end for one in found)
    rows = tuple(_row(one, begin, end) for one in found)
    spent = Spent(**{name: sum(getattr(one.spent, name) for one in found) for name in Spent.model_fields})
    return Story(
        gang={"name": group, "namespace": found[0].gang["namespace"]},
        phase=", ".join(sorted({one.phase for one in found})),
        attempt=max(one.attempt for one in found),
        begin=begin,
        end=end,
        complete=all(one.complete for one in found),
        sentences=(*(f"{one.name}: {one.sentences[0]}" for one in found), _ran(rows)),
        goodput=goodput(spent),
        spent=spent,
        attempts=(),
        rows=rows,
        incidents=(),
    )


def _row(one: Story, begin: float, end: float) -> Row:
    gang = one.rows[0]
    after = Bar(Activity.UNKNOWN, one.end, end)
    bars = [bar for bar in (Bar(Activity.WAITING, begin, one.begin), *gang.bars, after) if bar.seconds > 0]
    return replace(gang, name=one.name, bars=merged(tuple(bars or [after])))


def _ran(rows: Sequence[Row]) -> str:
    """How long at least one gang ran, and how long all did, of the time since the first of them ran."""
    edges = sorted({edge for row in rows for bar in row.bars for edge in (bar.begin, bar.end)})
    slices = [(right - left, [_runs(row, left) for row in rows]) for left, right in pairwise(edges)]
    since = next((at for at, (_, running) in enumerate(slices) if any(running)), None)
    if since is None:
        return "No replica has run."
    whole = sum(seconds for seconds, _ in slices[since:])
    some = sum(seconds for seconds, running in slices if any(running)) / whole
    every = sum(seconds for seconds, running in slices if all(running)) / whole
    return f"Since the first one ran: at least one replica {some:.1%} of the time, all {len(rows)} {every:.1%}."


def _runs(row: Row, time: float) -> bool:
    return any(bar.kind in _RUNS and bar.begin <= time < bar.end for bar in row.bars)
