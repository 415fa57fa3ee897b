"""Members that are passed over: a decision about 10,000 members looks closely only at those that may have a fault."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.core.facts.faults import faults
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard, Observed, Pod
from gangctl.core.policy.pods import unfit
from gangctl.core.policy.recovery import assign
from gangsidecar.wire import Phase, Report
from tests.core.arbitrary import jobs, worlds
from tests.core.world import START
from tests.effort import NIGHTLY, examples

_V = TypeVar("_V")
PHASES = (GangPhase.RUNNING, GangPhase.GATHERING)
MANY = 45 if NIGHTLY else 7
WIDE = examples(300)


def almost(data: st.DataObject, ordinary: _V, strange: _V, given_by: set[str]) -> _V:
    """The ordinary value, with at most two fields of the strange one."""
    names = sorted(one.name for one in fields(ordinary) if one.init and one.name not in given_by)  # type: ignore[arg-type]
    taken = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    changes: dict[str, Any] = {name: getattr(strange, name) for name in taken}
    return replace(ordinary, **changes)  # type: ignore[type-var]


def world_with_little_wrong(data: st.DataObject, job: GangJob) -> Observed:
    """Every member runs the attempt, or is ready for it, and of few of them a little is out of order."""
    drawn: Observed = data.draw(worlds(job))
    strange = {pod.member: pod for pod in drawn.pods}
    said = {one.report.member: one for one in drawn.heard}
    gang = Gang(START, job, drawn)
    phase = Phase.RUNNING if job.status.phase is GangPhase.RUNNING else Phase.READY
    pods: list[Pod] = []
    heard: list[Heard] = []
    for at, member in enumerate(gang.members):
        number = gang.incarnation(member)
        node = "node-a" if at % 2 else "node-b"  # The drawn worlds have something to say of node-a.
        pod = Pod(f"g-{member}-{number}", f"u{at}", member, number, node, START, START, START)
        one = Heard(Report(job.metadata.uid, member, number, pod.uid, "s", 1, job.status.attempt, phase), START)
        if member in strange:
            pod = almost(data, pod, strange[member], {"name", "uid", "member", "incarnation"})
        if member in said:
            report = almost(data, one.report, said[member].report, {"member", "incarnation", "pod", "session"})
            one = Heard(report, START, said[member].connected)
        pods.append(pod)
        heard.append(one)
    missing = data.draw(st.sampled_from([*pods, *heard, None]))
    return replace(
        drawn,
        pods=tuple(pod for pod in pods if pod is not missing),
        heard=tuple(one for one in heard if one is not missing),
    )


def test_who_is_passed_over_has_nothing_to_be_found() -> None:
    passed: Counter[GangPhase] = Counter()

    @WIDE
    @given(st.data())
    def look(data: st.DataObject) -> None:
        drawn = data.draw(jobs())
        phase = data.draw(st.sampled_from(PHASES))
        job = drawn.model_copy(update={"status": drawn.status.model_copy(update={"phase": phase})})
        observed = world_with_little_wrong(data, job)
        gang, slow = Gang(START, job, observed), Gang(START, job, observed)
        vars(slow)["conspicuous"] = frozenset(slow.members)
        assert faults(gang) == faults(slow)
        assert unfit(gang) == unfit(slow)
        assert assign(gang) == assign(slow)
        passed[phase] += len(gang.members.keys() - gang.conspicuous)

    look()
    assert min(passed[phase] for phase in PHASES) > MANY, "too few were passed over for the test to mean something"
