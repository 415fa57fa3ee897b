"""The gate: whether nodes with a change do worse than those without, a sound answer for few events and gangs. Pure.

The rule: events are node-hours with a fault, or with a restart that a pod of the node caused. If both sets had the same
rate per node-day, each of all events would be a candidate's with the probability p = days(candidate) / days(both), so

    p-value = P(Binomial(all events, p) >= those of the candidates)        one-sided (Przyborowski and Wilenski, 1940)
    power   = P(the test fails | the candidates' rate is the baseline's + detect)
    enough  = power >= POWER in each comparison
    outcome = Fail if a p-value is at most the level, else Pass if enough, else NotEnoughData
    level   = LEVEL / number of comparisons if enough, else INTERIM / number of comparisons

A limit in place of a baseline is compared by the Poisson distribution. An event never comes without exposure: its hour
counts as ten minutes at least.

Gangs that do the same work and ran wholly on one of the two sets are compared beside that, each by one value:

    p-value = P(the sum of as many ranks, drawn from those of all gangs, >= that of the candidates)   (Wilcoxon, exact)
    power   = 1 if candidates that are all worse than the baseline would fail, else 0: too few gangs
    limit   = fails if there is enough data and the candidates' median is beyond it: no test, since it is what is wanted

It needs no distribution and counts a gang once, however many steps it makes: steps of a gang aren't independent. The
fewest gangs that can fail are 3 beside 7, or 4 beside 5; where they have checks, 3 beside 8, or 4 beside 6.

The stricter level before there is enough data pays for looking again and again (Haybittle and Peto): those who watch
must not fail a harmless change in more than LEVEL of all cases. No data must never pass.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Final, NamedTuple

from gangctl.annexes.node_records.records import DAY, HOUR, TENTH, Hour, Records

LEVEL: Final = 0.05
INTERIM: Final = 0.001
POWER: Final = 0.8
HIGHEST: Final = 24.0
"""Events per node-day: one for each hour."""
MOST_GANGS: Final = 25
"""So many gangs of each set are compared, the newest."""
MOST_EVENTS: Final = 100_000
"""A number of candidates' events that no test needs to reach."""


class Measure(StrEnum):
    """What is counted, by the name in ``--slo``."""

    FAULTS = "faults-per-node-day"
    RESTARTS = "restarts-per-node-day"


class GangMeasure(StrEnum):
    """What is compared of gangs, by the name in ``--slo``."""

    GOODPUT = "goodput"
    STEP_TIME = "step-time"
    FIRST_STEP_TIME = "first-step-time"
    SLOW_RANKS = "slow-ranks"
    FAILED_CHECKS = "failed-checks"


class Outcome(StrEnum):
    """The answer of the gate."""

    PASSED = "Pass"
    FAILED = "Fail"
    NOT_ENOUGH_DATA = "NotEnoughData"


class Sample(NamedTuple):
    """What happened on a set of nodes, or to gangs wherever they ran."""

    nodes: int = 0
    """How many of them have been observed."""
    days: float = 0.0
    """Days of observation of all of them together."""
    events: Mapping[Measure, int] = {}
    """Empty: gangs alone are compared."""
    gangs: Mapping[GangMeasure, tuple[float, ...]] = {}
    """A value for each gang that has one."""


class Comparison(NamedTuple):
    """One comparison of the candidates: with the baseline, or with a limit."""

    measure: Measure | GangMeasure
    limit: float | None
    """Events per node-day, or the worst median of gangs; None = the baseline is compared."""
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
    return Sample(sum(map(any, map(_exposure, hours))), sum(_exposure(seen)) / DAY, events)


def _exposure(hours: Collection[Hour]) -> list[float]:
    """The seconds of observation. A gang that fails within minutes, each time, has few."""
    return [max(one.seconds, TENTH if one.fault or one.restart else 0.0) for one in hours]


def judge(candidate: Sample, baseline: Sample, limits: Mapping[Measure | GangMeasure, float], detect: float) -> Verdict:
    """Compare the candidates with the baseline, and with the limits.

    Args:
        candidate: the nodes with the change.
        baseline: the nodes without it.
        limits: the highest rate that is allowed, in events per node-day; of gangs, the worst median.
        detect: an increase of the rate that must not go unnoticed, in events per node-day.
    """
    of_gangs = [one for one in GangMeasure if candidate.gangs.get(one) or baseline.gangs.get(one)]
    of_nodes = [one for one in Measure if one in candidate.events]
    level = LEVEL / max(1, len(of_nodes) + len(of_gangs) + len(limits))
    found = (
        *(_with_baseline(one, candidate, baseline, detect, level) for one in of_nodes),
        *(_of_gangs(one, candidate.gangs.get(one, ()), baseline.gangs.get(one, ()), level) for one in of_gangs),
        *(
            _with_limit(one, limit, candidate, detect, level)
            if isinstance(one, Measure)
            else _of_gangs_with_limit(one, limit, candidate.gangs.get(one, ()))
            for one, limit in limits.items()
        ),
    )
    is_enough = bool(found) and all(one.power >= POWER for one in found)
    if not is_enough:
        level *= INTERIM / LEVEL
        found = tuple(one._replace(p_value=1.0) if _is_wanted_of_gangs(one) else one for one in found)
    if any(one.p_value <= level for one in found):
        return Verdict(Outcome.FAILED, level, found)
    return Verdict(Outcome.PASSED if is_enough else Outcome.NOT_ENOUGH_DATA, level, found)


def _is_wanted_of_gangs(one: Comparison) -> bool:
    return one.limit is not None and isinstance(one.measure, GangMeasure)


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
    if not candidate.days:
        return Comparison(one, limit, 1.0, 0.0)
    p_value = poisson_tail(candidate.events[one], limit * candidate.days)
    needed = _least(lambda events: poisson_tail(events, limit * candidate.days) <= level)
    return Comparison(one, limit, p_value, poisson_tail(needed, (limit + detect) * candidate.days))


def _of_gangs(one: GangMeasure, mine: Sequence[float], theirs: Sequence[float], level: float) -> Comparison:
    sign = -1.0 if one is GangMeasure.GOODPUT else 1.0
    worse, better = ([sign * value for value in values[:MOST_GANGS]] for values in (mine, theirs))
    least = 1 / math.comb(len(worse) + len(better), len(worse))
    return Comparison(one, None, rank_sum_tail(worse, better), float(least <= level))


def _of_gangs_with_limit(one: GangMeasure, limit: float, mine: Sequence[float]) -> Comparison:
    if not mine:
        return Comparison(one, limit, 1.0, 0.0)
    middle = median(mine)
    is_beyond = middle < limit if one is GangMeasure.GOODPUT else middle > limit
    return Comparison(one, limit, float(not is_beyond), 1.0)


def rank_sum_tail(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """P(the sum of as many ranks, drawn from those of all values, >= that of mine). Equal ones share ranks."""
    values = sorted((*mine, *theirs))
    # Twice the mean rank of equal values is a whole number.
    rank = {value: 2 * values.index(value) + values.count(value) + 1 for value in values}
    sums = [Counter({0: 1}), *(Counter[int]() for _ in mine)]
    """By how many ranks are drawn: sum -> in how many ways."""
    for each in (rank[value] for value in values):
        for drawn in range(len(mine), 0, -1):
            for total, ways in sums[drawn - 1].items():
                sums[drawn][total + each] += ways
    own = sum(rank[value] for value in mine)
    return sum(ways for total, ways in sums[-1].items() if total >= own) / math.comb(len(values), len(mine))


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
