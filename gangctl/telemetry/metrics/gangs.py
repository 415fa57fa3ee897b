"""Metrics of the gangs that exist now, by namespace: phases, ages, spent time, goodput, low budgets, Degraded.

The rule: only the leader exports them, so that a sum over all controllers counts no gang twice. A gang's share is
computed when its stored object changes, so that a scrape takes time by namespaces, not by gangs:

    spent(namespace, bucket, now) = sum over its gangs of spent(bucket) + growth(bucket) * (now - accounted)
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gangctl.api.gangjob import GangJob, Windowed
from gangctl.api.status import ENDED, GangPhase, Spent
from gangctl.cluster import clock
from gangctl.core.record.conditions import goodput, spent_until, warned_of
from gangctl.telemetry.metrics.exposition import GANG_PHASES, known_reason

BUCKETS: Final = tuple(Spent.model_fields)
LOW: Final = 0.8
"""A budget is low when this part of it is used."""
_MILLISECONDS: Final = 1000
_AHEAD: Final = 1000
"""Seconds over which growth is measured, so that one member of many is not rounded to nothing."""


@dataclass(frozen=True, slots=True)
class GangShare:
    """The share of one gang, as of its stored object. Durations are in whole milliseconds, so that sums stay exact."""

    namespace: str
    phase: GangPhase
    phase_time: float
    has_stepped: bool
    """True if it ever reported a training step; otherwise its goodput is not known."""
    spent: tuple[int, ...]
    """Milliseconds by bucket, up to ``accounted``."""
    growth: tuple[int, ...]
    """By bucket: milliseconds in 1000 s after ``accounted``, until the status changes."""
    accounted: int
    """Milliseconds since the epoch."""
    low_until: float
    """Until when its budget is low if nothing else happens; 0 if it is not low."""
    degraded: str
    """The reason of its condition Degraded; empty if that isn't True."""


def share(namespace: str, job: GangJob) -> GangShare:
    status = job.status
    since = status.accounted_time or clock.now()
    here, later = (_milliseconds(spent_until(status, since + more)) for more in (0, _AHEAD))
    return GangShare(
        namespace=namespace,
        phase=status.phase,
        phase_time=status.phase_time,
        has_stepped=status.first_step is not None,
        spent=here,
        growth=tuple(after - before for before, after in zip(here, later, strict=True)),
        accounted=round(since * _MILLISECONDS),
        low_until=_low_until(job),
        degraded=known_reason(reason) if (reason := warned_of(status)) else "",
    )


def _milliseconds(spent: Spent) -> tuple[int, ...]:
    return tuple(round(getattr(spent, bucket) * _MILLISECONDS) for bucket in BUCKETS)


def _low_until(job: GangJob) -> float:
    """When no budget is low any more, because a charge leaves its window; 0 if none is.

    Of the budget of a replica group, only what this gang has used counts.
    """
    group, found = job.spec.replica_group, [0.0]
    charges = sorted((entry.time for entry in job.status.ledger if entry.charged), reverse=True)
    for budget in (job.spec.recovery.budget, None if group is None else group.budget):
        if isinstance(budget, Windowed) and budget.max_restarts and job.status.phase not in ENDED:
            much = math.ceil(budget.max_restarts * LOW)
            found += [time + budget.window_seconds for time in charges[much - 1 : much]]
    return max(found)


class _Tally:
    """The spent time of several gangs. Each bucket is a linear function of time, and so is the sum."""

    def __init__(self) -> None:
        self._spent = [0] * len(BUCKETS)
        self._growth = [0] * len(BUCKETS)
        self._since = [0] * len(BUCKETS)
        """By bucket: the sum of growth * accounted of the gangs."""

    def add(self, one: GangShare, times: int) -> None:
        """Add a gang, or take it away (-1)."""
        for at, (spent, grows) in enumerate(zip(one.spent, one.growth, strict=True)):
            self._spent[at] += times * spent
            self._growth[at] += times * grows
            self._since[at] += times * grows * one.accounted

    def until(self, now: float) -> Spent:
        """Seconds by bucket, up to ``now``."""
        more = (
            max(0, round(now * _MILLISECONDS) * n - since) for n, since in zip(self._growth, self._since, strict=True)
        )
        sums = (had + grown // (_AHEAD * _MILLISECONDS) for had, grown in zip(self._spent, more, strict=True))
        return Spent(
            **{bucket: milliseconds / _MILLISECONDS for bucket, milliseconds in zip(BUCKETS, sums, strict=True)}
        )


class _Namespace:
    """The gangs of one namespace, by UID."""

    def __init__(self) -> None:
        self.gangs = 0
        self.since: dict[GangPhase, dict[str, float]] = {phase: {} for phase in GANG_PHASES}
        """Since when each gang has been in its phase."""
        self.low: dict[str, float] = {}
        """Until when each low budget is low."""
        self.degraded = Counter[str]()
        """Gangs by the reason of their condition Degraded."""
        self.spent = _Tally()
        self.stepped = _Tally()
        """The same, for gangs that have reported a training step."""

    def add(self, uid: str, one: GangShare) -> None:
        if one.phase in self.since:
            self.since[one.phase][uid] = one.phase_time
        if one.low_until:
            self.low[uid] = one.low_until
        self._tally(one, 1)

    def remove(self, uid: str, one: GangShare) -> None:
        if one.phase in self.since:
            del self.since[one.phase][uid]
        self.low.pop(uid, None)
        self._tally(one, -1)

    def _tally(self, one: GangShare, times: int) -> None:
        self.gangs += times
        self.degraded[one.degraded] += times
        self.spent.add(one, times)
        if one.has_stepped:
            self.stepped.add(one, times)


class GangMetrics:
    """A collector for the Prometheus client: the gangs of one term."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._shares: dict[str, GangShare] = {}
        """By UID."""
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)

    def keep(self, namespace: str, job: GangJob) -> None:
        """Replace the gang's share by that of its current stored object."""
        uid = job.metadata.uid
        self._remove(uid)
        one = self._shares[uid] = share(namespace, job)
        self._namespaces[namespace].add(uid, one)

    def drop(self, uid: str) -> None:
        """Remove a gang that is gone. A namespace without gangs has no series."""
        one = self._remove(uid)
        if one is not None and not self._namespaces[one.namespace].gangs:
            del self._namespaces[one.namespace]

    def drop_all(self) -> None:
        """Remove all gangs: the term is over."""
        self._shares.clear()
        self._namespaces.clear()

    def _remove(self, uid: str) -> GangShare | None:
        one = self._shares.pop(uid, None)
        if one is not None:
            self._namespaces[one.namespace].remove(uid, one)
        return one

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """The metrics with the values of now; without samples if this process does not lead."""
        now = clock.now()
        gangs = _gauge("gangctl_gangs", "Gangs by phase.", "phase")
        oldest = _gauge(
            "gangctl_gangs_oldest_seconds", "Time in this phase of the gang that has been in it longest.", "phase"
        )
        spent = _gauge(
            "gangctl_gangs_spent_seconds",
            "Time of the existing gangs by what it was spent on, since each was first seen.",
            "bucket",
        )
        ratio = _gauge(
            "gangctl_goodput_ratio", "Share of time that was useful training, for gangs that have reported a step."
        )
        low = _gauge("gangctl_gangs_budget_low", "Gangs that have used at least four fifths of their restart budget.")
        degraded = _gauge("gangctl_gangs_degraded", "Gangs whose condition Degraded is True, by its reason.", "reason")
        for namespace, total in self._namespaces.items() if self._leads() else ():
            for phase, times in total.since.items():
                gangs.add_metric([namespace, phase.value], len(times))
                if phase not in ENDED:
                    age = now - min(times.values(), default=now)
                    oldest.add_metric([namespace, phase.value], max(0.0, age))
            for bucket, seconds in total.spent.until(now):
                spent.add_metric([namespace, bucket], seconds)
            part = goodput(total.stepped.until(now))
            if part is not None:
                ratio.add_metric([namespace], part)
            low.add_metric([namespace], sum(now < until for until in total.low.values()))
            for reason in sorted(reason for reason, many in total.degraded.items() if reason and many):
                degraded.add_metric([namespace, reason], total.degraded[reason])
        return gangs, oldest, spent, ratio, low, degraded


def _gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=["namespace", *labels])
