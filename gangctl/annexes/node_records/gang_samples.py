"""What the gate compares of gangs: one value for each gang and measure, from its status. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import Final

from gangctl.annexes.node_records.gate import GangMeasure
from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.record.conditions import goodput, warned_of

FEWEST_STEPS: Final = 20
"""Of an attempt: a mean over fewer steps says little, since reports of progress are stored every 30 seconds."""


def gang_samples(
    gangs: Iterable[tuple[GangJob, Collection[str]]], nodes: Collection[str], since: float
) -> Mapping[GangMeasure, tuple[float, ...]]:
    """The values of the gangs that were created since then, and whose pods are all on these nodes.

    Args:
        gangs: the newest first, and the nodes of their pods.
        nodes: of one set.
        since: in seconds since the epoch.
    """
    there = [
        values_of(job.status)
        for job, its in gangs
        if its and set(its) <= set(nodes) and job.metadata.creation_timestamp >= since
    ]
    found = {one: tuple(values[one] for values in there if one in values) for one in GangMeasure}
    return {one: values for one, values in found.items() if values}


def values_of(status: Status) -> Mapping[GangMeasure, float]:
    """The values of one gang: what its status doesn't tell is absent.

    goodput          share of its time that was training that counts
    step-time        mean seconds a step in its newest attempt, of at least FEWEST_STEPS steps
    first-step-time  median seconds from the last worker's start to the first step, over its restarts
    slow-ranks       1 if a rank is slow, or was moved for that; else 0
    """
    share = goodput(status.spent)
    if share is None:
        return {}
    took = [found / 1000 for one in status.incidents if (found := one.milliseconds.first_step) is not None]
    is_slow = warned_of(status) == Reason.DEVICE_DEGRADED or any(
        one.cause.reason == Reason.DEVICE_DEGRADED for one in status.incidents
    )
    step = _step_time(status)
    return {
        GangMeasure.GOODPUT: share,
        GangMeasure.SLOW_RANKS: float(is_slow),
        **({} if step is None else {GangMeasure.STEP_TIME: step}),
        **({GangMeasure.FIRST_STEP_TIME: median(took)} if took else {}),
    }


def _step_time(status: Status) -> float | None:
    first, last = status.first_step, status.progress
    if first is None or last is None or first.step is None or first.attempt != last.attempt:
        return None
    steps = last.step - first.step
    return (last.time - first.time) / steps if steps >= FEWEST_STEPS else None
