"""A strip: bars one after the other, without gaps, onto which later knowledge is painted."""

from __future__ import annotations

from dataclasses import replace

from gangctl.explain.timeline.model import Bar

Strip = tuple[Bar, ...]


def painted(strip: Strip, over: Bar) -> Strip:
    """The strip with ``over`` on top of it, cut to the strip's ends; what takes no time leaves it as it is."""
    begin, end = max(over.begin, strip[0].begin), min(over.end, strip[-1].end)
    if begin >= end:
        return strip
    before = [replace(bar, end=min(bar.end, begin), goes_on=False) for bar in strip if bar.begin < begin]
    after = [replace(bar, begin=max(bar.begin, end)) for bar in strip if bar.end > end]
    return (*before, replace(over, begin=begin, end=end), *after)


def merged(strip: Strip) -> Strip:
    """The strip with neighbours that say the same as one bar."""
    found: list[Bar] = []
    for bar in strip:
        last = found[-1] if found else None
        if last is not None and (last.kind, last.attempt) == (bar.kind, bar.attempt):
            found[-1] = replace(last, end=bar.end, goes_on=bar.goes_on)
        else:
            found.append(bar)
    return tuple(found)
