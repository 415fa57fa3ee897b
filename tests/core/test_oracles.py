"""The core agrees with second, plain implementations of its rules, whatever is stored and whatever is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.incident import Cause
from gangctl.api.model import changed
from gangctl.core.facts import barrier
from gangctl.core.facts.faults import faults
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard, Pod
from gangctl.core.policy import cause, recovery
from gangsidecar.wire import Phase, Report
from tests.core import oracles
from tests.core.arbitrary import jobs, worlds
from tests.core.oracles import Facts
from tests.core.scenario import sentence
from tests.core.world import START, World
from tests.effort import examples

STATES = examples(150)


@STATES
@given(st.data())
def test_the_core_agrees_with_its_oracles(data: st.DataObject) -> None:
    job = data.draw(jobs())
    gang = Gang(START, job, data.draw(worlds(job)))
    the_barrier_blocks_the_same_pods(gang)
    the_same_members_get_the_ranks(gang)
    if gang.status.incidents:
        the_incident_has_the_same_cause_and_outcome(gang)
        seen = [cause.judge_fault(gang.spec, fault) for fault in faults(gang)]
        if seen:
            the_incident_has_the_same_cause_and_outcome(_put_down_to(gang, data.draw(st.sampled_from(seen)), data))


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("started_at", [None, START])
def test_a_superseded_pod_blocks_once_something_of_it_has_started(
    *, started_at: float | None, restarts: int, heard: bool
) -> None:
    world = World()
    sentence(world, "the gang runs")
    sentence(world, "worker-0 ends with 1")
    world.decide()
    old = Pod("g-worker-1-7", "old", "worker-1", 7, started_at=started_at, restarts=restarts)
    world.pods["old"] = old
    if heard:
        world.heard["old"] = Heard(Report("uid-g", "worker-1", 7, "old", "old/1", 1, 0, Phase.IDLE), world.now)
    gang = Gang(world.now, world.job, world.observed())
    blocks = old.uid in [one.uid for one in barrier.blocking_pods(gang).doubtful]
    assert blocks is (started_at is not None or restarts > 0 or heard)
    the_barrier_blocks_the_same_pods(gang)


def the_barrier_blocks_the_same_pods(gang: Gang) -> None:
    """The barrier's rule."""
    found = barrier.blocking_pods(gang)
    names = [f"{member}.{gang.incarnation(member)}" for member in found.certain]
    names += [f"{one.member}.{one.incarnation}" for one in found.doubtful]
    rest = [] if found.rest is None else [f"of incarnation {found.rest.incarnation} or before"]
    assert sorted([*names, *rest]) == oracles.blocking(facts(gang))


def the_same_members_get_the_ranks(gang: Gang) -> None:
    """The rule of ranks."""
    assert recovery.assign(gang) == oracles.assign(facts(gang))


def the_incident_has_the_same_cause_and_outcome(gang: Gang) -> None:
    """The rule of the cause, and what follows from it where no two members are tied."""
    found = faults(gang)
    causes = [cause.judge_fault(gang.spec, fault, found) for fault in found]
    expected = oracles.strongest(facts(gang), gang.status.incidents[0].cause, causes)
    settlement = cause.settle_cause(gang, cause.strongest(gang))
    if len(settlement.cause.tied) <= 1:
        end = recovery.rung(gang) is recovery.Rung.END or recovery.is_row_of_failed_starts(gang, expected)
        assert changed(settlement.cause, tied=(), alike=False) == changed(expected, tied=(), alike=False)
        assert (settlement.outcome, settlement.charged) == oracles.outcome(facts(gang), expected, again_and_again=end)


def _put_down_to(gang: Gang, one: Cause, data: st.DataObject) -> Gang:
    """Return the gang whose incident has a stored cause like this one, told a little differently."""
    like = changed(
        one,
        time=one.time + data.draw(st.sampled_from([-30, 0, 30])),
        rank=data.draw(st.sampled_from([one.rank, 7])),
        rule=data.draw(st.sampled_from([one.rule, None])),
        member=data.draw(st.sampled_from([one.member, "worker-0"])),
    )
    first, *others = gang.status.incidents
    status = changed(gang.status, incidents=(changed(first, cause=like), *others))
    return Gang(gang.now, changed(gang.job, status=status), gang.observed)


def facts(gang: Gang) -> Facts:
    """What the oracles look at."""
    return Facts(gang.now, gang.job, gang.observed)
