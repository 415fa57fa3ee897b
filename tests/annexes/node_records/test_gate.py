"""The test of the gate against exact sums, its false alarms, and the nodes that a selector selects."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.gate import watched
from gangctl.annexes.node_records import gate, selector
from gangctl.annexes.node_records.gate import LEVEL, Measure, Outcome, Sample
from gangctl.annexes.node_records.records import HOUR, Hour, NodeRecord
from gangctl.kubernetes.objects import Node

FIRST = 480_000
"""An hour since the epoch."""


def sampled(days: float, faults: int = 0, restarts: int | None = None) -> Sample:
    return Sample(1, days, {Measure.FAULTS: faults, Measure.RESTARTS: faults if restarts is None else restarts})


def outcome(candidate: Sample, baseline: Sample, detect: float = 1.0, **limits: float) -> Outcome:
    return gate.judge(
        candidate, baseline, {Measure[name.upper()]: rate for name, rate in limits.items()}, detect
    ).outcome


events, shares = st.integers(0, 25), st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=50)


@given(events, events, shares)
def test_the_p_value_is_the_tail_of_the_binomial_distribution(mine: int, theirs: int, share: Fraction) -> None:
    both = mine + theirs
    exact = sum(math.comb(both, one) * share**one * (1 - share) ** (both - one) for one in range(mine, both + 1))
    assert gate.binomial_tail(mine, theirs, float(share)) == pytest.approx(float(exact), abs=1e-12)


@given(events, st.floats(0.01, 30))
def test_the_power_is_the_tail_of_the_poisson_distribution(mine: int, mean: float) -> None:
    below = sum(math.exp(-mean) * mean**one / math.factorial(one) for one in range(mine))
    assert gate.poisson_tail(mine, mean) == pytest.approx(1 - below, abs=1e-12)


@given(events, events, shares, st.floats(0.01, 30))
def test_more_events_of_the_candidates_are_never_less_suspicious(
    mine: int, theirs: int, share: Fraction, mean: float
) -> None:
    assert gate.binomial_tail(mine + 1, theirs, float(share)) <= gate.binomial_tail(mine, theirs, float(share)) + 1e-12
    assert gate.binomial_tail(mine, theirs + 1, float(share)) >= gate.binomial_tail(mine, theirs, float(share)) - 1e-12
    assert gate.poisson_tail(mine + 1, mean) <= gate.poisson_tail(mine, mean)


def test_many_events_are_computed_without_overflow() -> None:
    assert gate.binomial_tail(20_000, 20_000, 0.5) == pytest.approx(0.5, abs=0.01)
    assert gate.binomial_tail(21_000, 19_000, 0.5) < 1e-9


@pytest.mark.parametrize("days", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("ratio", [1.0, 6.0])
@pytest.mark.parametrize("rate", [0.02, 0.2, 1.0])
def test_equal_rates_fail_in_at_most_one_case_of_twenty(days: float, ratio: float, rate: float) -> None:
    """The exact probability for one look: over all numbers of events of both sets."""

    mine, theirs = (likely(rate * one) for one in (days, days * ratio))
    failed = sum(
        first * second
        for own, first in mine.items()
        for other, second in theirs.items()
        if outcome(sampled(days, own), sampled(days * ratio, other)) is Outcome.FAILED
    )
    assert failed <= LEVEL


def likely(mean: float) -> dict[int, float]:
    """The Poisson distribution without its unlikely ends."""
    found = {one: gate.poisson_tail(one, mean) - gate.poisson_tail(one + 1, mean) for one in range(int(4 * mean) + 12)}
    return {one: chance for one, chance in found.items() if chance > 1e-7}


def test_it_passes_fails_and_abstains() -> None:
    assert outcome(sampled(6), sampled(60, 3)) is Outcome.PASSED
    assert outcome(sampled(6, 6), sampled(60, 3)) is Outcome.FAILED
    assert outcome(sampled(1), sampled(60, 3)) is Outcome.NOT_ENOUGH_DATA
    assert outcome(sampled(6), sampled(0)) is Outcome.NOT_ENOUGH_DATA
    assert outcome(sampled(0), sampled(60)) is Outcome.NOT_ENOUGH_DATA
    assert outcome(sampled(0.5, 9), sampled(60, 3)) is Outcome.FAILED, "so clear that little data is enough"
    assert outcome(sampled(1, 2), sampled(60, 3)) is Outcome.NOT_ENOUGH_DATA, "by chance in one look of many"
    assert outcome(sampled(1), sampled(60, 3), detect=10.0) is Outcome.PASSED
    assert outcome(sampled(6, 0, 9), sampled(60, 0, 3)) is Outcome.FAILED, "restarts alone fail it"


def test_a_limit_fails_whatever_the_baseline_does() -> None:
    assert outcome(sampled(20, 20), sampled(60, 60)) is Outcome.PASSED
    assert outcome(sampled(20, 20), sampled(60, 60), restarts=0.2) is Outcome.FAILED
    assert outcome(sampled(20, 20), sampled(60, 60), restarts=1.0) is Outcome.PASSED


def test_no_exposure_is_not_enough_data_for_a_limit_whatever_happened() -> None:
    assert outcome(sampled(0, 3), sampled(60), restarts=24.0) is Outcome.NOT_ENOUGH_DATA


@pytest.mark.parametrize("seconds", [0.0, 240.0])
def test_an_hour_with_an_event_counts_as_ten_minutes_at_least(seconds: float) -> None:
    """A gang that fails within minutes, each time, is stored with no ten minutes of observation."""
    records = {"node-1": NodeRecord(hours={FIRST: Hour(seconds, restart=True), FIRST + 1: Hour(1200, fault=True)})}
    seen = gate.sample(records, ["node-1"], FIRST * HOUR)
    assert seen.nodes == 1
    assert seen.days == pytest.approx((600 + 1200) / 86_400)
    once = gate.sample({"node-1": NodeRecord(hours={FIRST: Hour(0.0, restart=True)})}, ["node-1"], FIRST * HOUR)
    assert outcome(once, sampled(1), restarts=24.0) is Outcome.NOT_ENOUGH_DATA


tens_of_minutes = st.integers(0, 3000).map(lambda one: one / 144)
samples = st.builds(sampled, tens_of_minutes, events)


@settings(max_examples=50)
@given(samples, samples, st.sampled_from([0.2, 1.0, 5.0]))
def test_a_pass_means_that_the_increase_would_probably_have_failed(
    candidate: Sample, baseline: Sample, detect: float
) -> None:
    verdict = gate.judge(candidate, baseline, {}, detect)
    powers = [one.power for one in verdict.comparisons]
    if verdict.outcome is Outcome.PASSED:
        assert min(powers) >= gate.POWER
    if not candidate.days or not baseline.days:
        assert verdict.outcome is Outcome.NOT_ENOUGH_DATA
    worse = candidate._replace(events={one: count + 2000 for one, count in candidate.events.items()})
    if min(powers) >= gate.POWER:
        assert gate.judge(worse, baseline, {}, detect).outcome is Outcome.FAILED


def test_to_look_each_hour_until_there_is_an_answer_fails_a_harmless_change_rarely() -> None:
    """200 changes without an effect, and 100 that add two events a node-day."""
    for rate in (0.05, 0.3, 1.0):
        chance = random.Random(7)
        answers = [watched(chance, rate).outcome for _ in range(200)]
        assert answers.count(Outcome.FAILED) / len(answers) <= LEVEL
        bad = [watched(chance, rate, 2.0).outcome for _ in range(100)]
        assert bad.count(Outcome.PASSED) / len(bad) <= 1 - gate.POWER


def test_gangs_that_differ_by_chance_alone_fail_a_harmless_change_rarely() -> None:
    chance = random.Random(7)
    answers = [watched(chance, 0.05, gangs=True).outcome for _ in range(40)]
    assert answers.count(Outcome.FAILED) / len(answers) <= LEVEL
    assert Outcome.PASSED in answers


def test_a_sample_has_the_whole_hours_since_a_time() -> None:
    hours = {
        FIRST: Hour(HOUR, fault=True, restart=True),
        FIRST + 1: Hour(HOUR),
        FIRST + 2: Hour(HOUR / 2, restart=True),
    }
    records = {
        "n1": NodeRecord(hours=hours),
        "n2": NodeRecord(hours={FIRST: Hour(HOUR)}),
        "other": NodeRecord(hours=hours),
    }
    found = gate.sample(records, {"n1", "n2", "unknown"}, FIRST * HOUR)
    assert found == Sample(2, 3.5 / 24, {Measure.FAULTS: 1, Measure.RESTARTS: 2})
    found = gate.sample(records, {"n1", "n2"}, FIRST * HOUR + 1)
    assert found == Sample(1, 1.5 / 24, {Measure.FAULTS: 0, Measure.RESTARTS: 1})


NODES = (
    Node(name="a", labels={"pool": "a100", "driver": "570"}, kubelet="v1.36.3", kernel="6.1"),
    Node(name="b", labels={"pool": "a100", "driver": "580"}, kubelet="v1.37.2", image="Ubuntu 24.04.1 LTS"),
    Node(name="c", labels={"pool": "h100", "example.com/spot": ""}, kubelet="v1.37.2", runtime="containerd://2.4.2"),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pool=a100", "ab"),
        ("pool==a100,driver=580", "b"),
        (" pool = a100 , driver != 580 ", "a"),
        ("driver!=580", "ac"),
        ("driver in (570, 580)", "ab"),
        ("driver notin (570)", "bc"),
        ("example.com/spot", "c"),
        ("!driver", "c"),
        ("example.com/spot=", "c"),
        ("node.kubelet=v1.37.2,pool=a100", "b"),
        ("node.kernel=6.1", "a"),
        ("node.image=Ubuntu 24.04.1 LTS", "b"),
        ("node.runtime=containerd://2.4.2", "c"),
    ],
)
def test_a_selector_selects_nodes_as_kubectl_does_and_by_their_versions(text: str, names: str) -> None:
    assert selector.selected(NODES, selector.parse(text)) == set(names)


@pytest.mark.parametrize("text", ["", " ", "=", "a=b=c,", "a in b", "a in (b", ",a", "a,,b", "a b", "a!", "a=(b)"])
def test_what_is_not_a_selector_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="isn't a selector"):
        selector.parse(text)


keys = st.sampled_from(["pool", "driver"])
values = st.sampled_from(["a100", "570", "580", "none"])


@given(keys, st.lists(values, min_size=1, unique=True))
def test_in_and_notin_share_out_all_nodes(key: str, some: list[str]) -> None:
    sets = [selector.selected(NODES, selector.parse(f"{key} {word} ({','.join(some)})")) for word in ("in", "notin")]
    assert sets[0] | sets[1] == {"a", "b", "c"}
    assert not sets[0] & sets[1]


def test_pseudo_labels_do_not_hide_labels() -> None:
    found: Mapping[str, str] = selector.labels(NODES[0])
    assert found["pool"] == "a100"
    assert {*selector.PSEUDO} <= {*found}
