"""The gate: whether the nodes with a change have more faults than those without, a sound answer for few events. Pure.

The rule: events are node-hours with a fault, or with a restart that a pod of the node caused. If both sets had the same
rate per node-day, each of all events would be a candidate's with the probability p = days(candidate) / days(both), so

    p-value = P(Binomial(all events, p) >= those of the candidates)        one-sided (Przyborowski and Wilenski, 1940)
    power   = P(the test fails | the candidates' rate is the baseline's + detect)
    enough  = power >= POWER in each comparison
    outcome = Fail if a p-value is at most the level, else Pass if enough, else NotEnoughData
    level   = LEVEL / number of comparisons if enough, else INTERIM / number of comparisons

A limit in place of a baseline is compared by the Poisson distribution. The stricter level before there is enough data
pays for looking again and again (Haybittle and Peto): those who watch must not fail a harmless change in more than
LEVEL of all cases. No data must never pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gangctl.annexes.node_records.records import DAY, HOUR, Hour, Records

LEVEL: Final = 0.05
INTERIM: Final = 0.001
POWER: Final = 0.8
HIGHEST: Final = 24.0
"""Events per node-day: one for each hour."""
MOST_EVENTS: Final = 100_000
"""A number of candidates' events that no test needs to reach."""


class Measure(StrEnum):
    """What is counted, by the name in ``--slo``."""

    FAULTS = "faults-per-node-day"
    RESTARTS = "restarts-per-node-day"


class Outcome(StrEnum):
    """The answer of the gate."""

    PASSED = "Pass"
    FAILED = "Fail"
    NOT_ENOUGH_DATA = "NotEnoughData"


class Sample(NamedTuple):
    """What happened on a set of nodes."""

    nodes: int
    """How many of them have been observed."""
    days: float
    """Days of observation of all of them together."""
    events: Mapping[Measure, int]


class Comparison(NamedTuple):
    """One comparison of the candidates: with the baseline, or with a limit."""

    measure: Measure
    limit: float | None
    """Events per node-day; None = the baseline is compared."""
    p_value: float
    power: float


class Verdict(NamedTuple):
    """The answer, and what it rests on."""

    outcome: Outcome
    level: float
    """The p-value up to which a comparison fails."""
    comparisons: tuple[Comparison, ...]


def sample(records: Records, nodes: Collection[str], since: float) -> Sample:
    """What happened on these nodes in the whole hours since a time in seconds since the epoch."""
    first = math.ceil(since / HOUR)
    hours = [[its for hour, its in records[node].hours.items() if hour >= first] for node in nodes if node in records]
    seen = [one for found in hours for one in found]
    events = {Measure.FAULTS: sum(one.fault for one in seen), Measure.RESTARTS: sum(one.restart for one in seen)}
    return Sample(sum(map(_is_observed, hours)), sum(one.seconds for one in seen) / DAY, events)


def _is_observed(hours: Collection[Hour]) -> bool:
    return any(one.seconds for one in hours)


def judge(candidate: Sample, baseline: Sample, limits: Mapping[Measure, float], detect: float) -> Verdict:
    """Compare the candidates with the baseline, and with the limits.

    Args:
        candidate: the nodes with the change.
        baseline: the nodes without it.
        limits: the highest rate that is allowed, in events per node-day.
        detect: an increase of the rate that must not go unnoticed, in events per node-day.
    """
    level = LEVEL / (len(Measure) + len(limits))
    found = (
        *(_with_baseline(one, candidate, baseline, detect, level) for one in Measure),
        *(_with_limit(one, limit, candidate, detect, level) for one, limit in limits.items()),
    )
    is_enough = all(one.power >= POWER for one in found)
    level = level if is_enough else level * INTERIM / LEVEL
    if any(one.p_value <= level for one in found):
        return Verdict(Outcome.FAILED, level, found)
    return Verdict(Outcome.PASSED if is_enough else Outcome.NOT_ENOUGH_DATA, level, found)


def _with_baseline(one: Measure, candidate: Sample, baseline: Sample, detect: float, level: float) -> Comparison:
    if not candidate.days or not baseline.days:
        return Comparison(one, None, 1.0, 0.0)
    share = candidate.days / (candidate.days + baseline.days)
    theirs = baseline.events[one]
    expected = min(HIGHEST, theirs / baseline.days)
    p_value = binomial_tail(candidate.events[one], theirs, share)
    needed = _least(lambda events: binomial_tail(events, theirs, share) <= level)
    return Comparison(one, None, p_value, poisson_tail(needed, (expected + detect) * candidate.days))


def _with_limit(one: Measure, limit: float, candidate: Sample, detect: float, level: float) -> Comparison:
    p_value = poisson_tail(candidate.events[one], limit * candidate.days)
    needed = _least(lambda events: poisson_tail(events, limit * candidate.days) <= level)
    return Comparison(one, limit, p_value, poisson_tail(needed, (limit + detect) * candidate.days))


def binomial_tail(events: int, others: int, share: float) -> float:
    """P(Binomial(events + others, share) >= events): so many before ``others + 1`` failures of single trials."""
    if not 0 < share < 1:
        return 1.0
    each, last, fails = math.log(share), (others + 1) * math.log1p(-share), math.lgamma(others + 1)
    terms = (math.lgamma(one + others + 1) - math.lgamma(one + 1) - fails + one * each + last for one in range(events))
    return max(0.0, 1.0 - math.fsum(map(math.exp, terms)))


def poisson_tail(events: int, mean: float) -> float:
    """P(Poisson(mean) >= events)."""
    if mean <= 0:
        return float(events == 0)
    terms = (one * math.log(mean) - mean - math.lgamma(one + 1) for one in range(events))
    return max(0.0, 1.0 - math.fsum(map(math.exp, terms)))


def _least(is_enough: Callable[[int], bool]) -> int:
    """The least number for which it holds, and for all above; MOST_EVENTS if there is none below."""
    high = 1
    while high < MOST_EVENTS and not is_enough(high):
        high *= 2
    low = high // 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low
