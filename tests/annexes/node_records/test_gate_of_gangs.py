"""What the gate compares of gangs: values from statuses, and the rank sum test against all ways to share gangs out."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.annexes.node_records import gate
from gangctl.annexes.node_records.gang_samples import Worker, gang_samples, on_nodes, values_of, with_image
from gangctl.annexes.node_records.gate import LEVEL, GangMeasure, Measure, Outcome, Sample
from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from tests.cluster.kube.objects import gang

QUIET = dict.fromkeys(Measure, 0)
values = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=5)


@given(values, values)
def test_the_p_value_counts_the_ways_to_share_the_gangs_out(mine: list[float], theirs: list[float]) -> None:
    both = [*mine, *theirs]
    rank = {one: sum(other < one for other in both) * 2 + both.count(one) + 1 for one in both}
    own = sum(rank[one] for one in mine)
    ways = [sum(rank[both[at]] for at in some) for some in itertools.combinations(range(len(both)), len(mine))]
    assert gate.rank_sum_tail(mine, theirs) == pytest.approx(sum(one >= own for one in ways) / len(ways))


def outcome(
    mine: list[float], theirs: list[float], measure: GangMeasure = GangMeasure.STEP_TIME, **limits: float
) -> Outcome:
    candidate, baseline = (Sample(4, 60.0, QUIET, {measure: tuple(one)}) for one in (mine, theirs))
    named: dict[Measure | GangMeasure, float] = {GangMeasure(name.replace("_", "-")): limits[name] for name in limits}
    return gate.judge(candidate, baseline, named, 1.0).outcome


def test_gangs_that_are_slower_fail_and_too_few_gangs_abstain() -> None:
    slow, usual = [2.0, 2.1, 2.2, 2.3], [1.0, 1.1, 1.2, 1.3, 1.4]
    assert outcome(slow, usual) is Outcome.FAILED
    assert outcome(usual, slow) is Outcome.PASSED
    assert outcome(slow, usual, GangMeasure.GOODPUT) is Outcome.PASSED, "of goodput, more is better"
    assert outcome(usual, slow, GangMeasure.GOODPUT) is Outcome.FAILED
    assert outcome(slow[:1], usual) is Outcome.NOT_ENOUGH_DATA
    assert outcome([], usual) is Outcome.NOT_ENOUGH_DATA


def test_the_limit_of_a_median_is_what_is_wanted() -> None:
    slow, usual = [2.0, 2.1, 2.2, 2.3], [2.0, 2.1, 2.2, 2.3, 2.4]
    assert outcome(slow, usual, step_time=2.2) is Outcome.PASSED
    assert outcome(slow, usual, step_time=2.1) is Outcome.FAILED
    assert outcome([0.8, 0.9, 0.7, 0.8], [0.8] * 5, GangMeasure.GOODPUT, goodput=0.85) is Outcome.FAILED
    assert outcome([9.0], usual, step_time=2.1) is Outcome.NOT_ENOUGH_DATA, "the first gang has just begun"
    assert outcome(slow, usual, goodput=0.9) is Outcome.NOT_ENOUGH_DATA, "no gang tells it"


@pytest.mark.parametrize("measure", GangMeasure)
def test_a_change_without_an_effect_on_gangs_fails_rarely(measure: GangMeasure) -> None:
    chance = random.Random(3)
    drawn = [[chance.lognormvariate(0, 0.2) for _ in range(12)] for _ in range(400)]
    failed = [outcome(one[:5], one[5:], measure) for one in drawn].count(Outcome.FAILED)
    assert failed / len(drawn) <= LEVEL


STATUS = {
    "phase": "Running",
    "attempt": 2,
    "spent": {"training": 90.0, "lostProgress": 10.0, "recovery": 10.0},
    "firstStep": {"attempt": 2, "step": 100, "time": "2026-11-27T08:00:00Z"},
    "progress": {"attempt": 2, "step": 160, "time": "2026-11-27T08:02:00Z"},
}


def incident(reason: str, first_step: int) -> dict[str, object]:
    cause = {"reason": reason, "member": "worker-0", "time": "2026-11-27T07:59:00Z"}
    return {"attempt": 2, "time": "2026-11-27T07:59:00Z", "cause": cause, "milliseconds": {"firstStep": first_step}}


def read(**more: object) -> Status:
    return GangJob.model_validate(gang(status={**STATUS, **more})).status


def test_a_gang_has_the_values_that_its_status_tells() -> None:
    found = values_of(read(incidents=[incident("ExitCode", 1500), incident("DeviceDegraded", 2500)]))
    assert found == {
        GangMeasure.GOODPUT: pytest.approx(80 / 100),
        GangMeasure.STEP_TIME: pytest.approx(2.0),
        GangMeasure.FIRST_STEP_TIME: pytest.approx(2.0),
        GangMeasure.SLOW_RANKS: 1.0,
    }
    assert GangMeasure.STEP_TIME not in values_of(read(progress={**STATUS["progress"], "step": 110}))  # type: ignore[dict-item]
    assert GangMeasure.STEP_TIME not in values_of(read(progress={**STATUS["progress"], "attempt": 3}))  # type: ignore[dict-item]
    assert values_of(read())[GangMeasure.SLOW_RANKS] == 0.0
    done = {"name": "disk", "time": "2026-11-27T07:59:00Z", "members": 4}
    checks = [{**done, "result": "Passed"}, {**done, "result": "CheckFaulty", "failures": 4}]
    assert values_of(read(checks={"attempt": 2, "results": checks}))[GangMeasure.FAILED_CHECKS] == 0.5
    assert values_of(read(spent={})) == {}, "a gang that never reports a step"


def test_only_new_gangs_on_nodes_of_one_set_count() -> None:
    def job(time: str) -> GangJob:
        made = gang(status=STATUS)
        made["metadata"]["creationTimestamp"] = time
        return GangJob.model_validate(made)

    new, old = job("2026-11-27T08:00:00Z"), job("2026-11-26T08:00:00Z")
    since = new.metadata.creation_timestamp - 60
    workers = [[Worker(node) for node in nodes] for nodes in (["n1"], ["n1", "n2"], ["n1", "other"], [])]
    there = [*((new, its) for its in workers), (old, [Worker("n1")])]
    assert len(gang_samples(there, on_nodes({"n1", "n2"}), since)[GangMeasure.GOODPUT]) == 2
    assert gang_samples(there, on_nodes({"n3"}), since) == {}


def test_a_gang_is_on_the_side_whose_image_its_workers_run() -> None:
    one, other, proxy = (
        Worker("n1", (f"hub.example/{name}", f"hub.example/{name[:5]}@sha256:{digest}"))
        for name, digest in (("train:v2", "aa22"), ("train:v1", "bb11"), ("proxy:v9", "cc99"))
    )
    new, old = with_image("train:v2", "train:v1"), with_image("sha256:bb*", "sha256:aa22")
    for its, sides in (([one, one], (True, False)), ([other, proxy], (False, True)), ([one, other], (False, False))):
        assert (new(its), old(its)) == sides
    assert not with_image("rain:v2", "x")([one]), "a part of a name is no name"
    assert with_image("*rain:v2", "x")([one])


def test_gangs_alone_pass_fail_and_abstain() -> None:
    slow, usual = (Sample(gangs={GangMeasure.FAILED_CHECKS: values}) for values in ((0.5,) * 4, (0.0,) * 5))
    assert gate.judge(slow, usual, {}, 1.0).outcome is Outcome.FAILED
    assert gate.judge(usual, slow, {}, 1.0).outcome is Outcome.PASSED
    assert gate.judge(Sample(), Sample(), {}, 1.0).outcome is Outcome.NOT_ENOUGH_DATA, "no data must never pass"
