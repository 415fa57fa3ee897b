"""What the gate compares of gangs: one value for each gang and measure, from its status. Pure.

A gang is on one of two sides by the nodes of its pods, all of them, or by the images of its workers: one at least is of
this side, and none of the other, so that an image beside the one that changes does no harm.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from statistics import median
from typing import Final, NamedTuple

from gangctl.annexes.node_records.gate import GangMeasure
from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.record.conditions import goodput, warned_of

FEWEST_STEPS: Final = 20
"""Of an attempt: a mean over fewer steps says little, since reports of progress are stored every 30 seconds."""


class Worker(NamedTuple):
    """What a pod of a gang runs, and where."""

    node: str
    images: tuple[str, ...] = ()
    """The image of the worker's container: as the pod names it, and with its digest."""

    def runs(self, pattern: str) -> bool:
        """Say whether an image is this one: a shell pattern, which may begin after any ``/`` or ``@`` of the name."""
        return any(fnmatchcase(one, end) for one in self.images for end in (pattern, f"*[/@]{pattern}"))


IsThere = Callable[[Collection[Worker]], bool]
"""Whether a gang with these workers belongs to a side."""


def on_nodes(nodes: Collection[str]) -> IsThere:
    """Gangs with all pods on these nodes."""
    return lambda its: all(one.node in nodes for one in its)


def with_image(pattern: str, other: str) -> IsThere:
    """Gangs that run this image, and not the other side's."""
    return lambda its: any(one.runs(pattern) for one in its) and not any(one.runs(other) for one in its)


def gang_samples(
    gangs: Iterable[tuple[GangJob, Collection[Worker]]], is_there: IsThere, since: float
) -> Mapping[GangMeasure, tuple[float, ...]]:
    """The values of the gangs of a side that were created since then, in seconds since the epoch.

    ``gangs``: the newest first, with their workers; one without a pod belongs to no side.
    """
    there = [
        values_of(job.status)
        for job, its in gangs
        if its and is_there(its) and job.metadata.creation_timestamp >= since
    ]
    found = {one: tuple(values[one] for values in there if one in values) for one in GangMeasure}
    return {one: values for one, values in found.items() if values}


def values_of(status: Status) -> Mapping[GangMeasure, float]:
    """The values of one gang: what its status doesn't tell is absent.

    goodput          share of its time that was training that counts
    step-time        mean seconds a step in its newest attempt, of at least FEWEST_STEPS steps
    first-step-time  median seconds from the last worker's start to the first step, over its restarts
    slow-ranks       1 if a rank is slow, or was moved for that; else 0
    failed-checks    share of members that did not pass, in its newest checks (``recovery.checks``)
    """
    share = goodput(status.spent)
    if share is None:
        return {}
    took = [found / 1000 for one in status.incidents if (found := one.milliseconds.first_step) is not None]
    is_slow = warned_of(status) == Reason.DEVICE_DEGRADED or any(
        one.cause.reason == Reason.DEVICE_DEGRADED for one in status.incidents
    )
    step, checks = _step_time(status), () if status.checks is None else status.checks.results
    members = sum(one.members for one in checks)
    return {
        GangMeasure.GOODPUT: share,
        GangMeasure.SLOW_RANKS: float(is_slow),
        **({} if step is None else {GangMeasure.STEP_TIME: step}),
        **({GangMeasure.FIRST_STEP_TIME: median(took)} if took else {}),
        **({GangMeasure.FAILED_CHECKS: sum(one.failures for one in checks) / members} if members else {}),
    }


def _step_time(status: Status) -> float | None:
    first, last = status.first_step, status.progress
    if first is None or last is None or first.step is None or first.attempt != last.attempt:
        return None
    steps = last.step - first.step
    return (last.time - first.time) / steps if steps >= FEWEST_STEPS else None
