"""What counts on a node, what a tenant can't do to it, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.annexes.node_records import records, stored
from gangctl.annexes.node_records.records import DAY, HALF_LIFE_SECONDS, HOUR, Finding, Hour, NodeRecord, Records
from gangctl.api.incident import Cause, CheckResult, Incident
from gangctl.api.policy import Action
from gangctl.api.reasons import Reason

NOW = 20_000 * DAY + 12 * HOUR


def fault(
    node: str = "n1",
    namespace: str = "a",
    gang: str = "g",
    kind: str = Reason.DEVICE_LOST,
    time: float = NOW,
    *,
    is_fault: bool = True,
) -> Finding:
    return Finding(node, namespace, gang, kind, "gpu-3" if kind == Reason.DEVICE_LOST else "", time, is_fault)


def after(*found: Finding, now: float = NOW) -> Records:
    return records.with_findings({}, found, now)


def incident(reason: str, **fields: object) -> Incident:
    cause = {"reason": reason, "member": "w-0", "node": "n1", "time": NOW, **fields}
    return Incident(attempt=2, time=NOW, cause=Cause.model_validate(cause), settled=True, outcome="Restarted")


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (incident(Reason.DEVICE_LOST), True),
        (incident(Reason.NODE_LOST), True),
        (incident(Reason.NODE_UNHEALTHY), True),
        (incident(Reason.STUCK), True),
        (incident(Reason.EXIT_CODE, exit_code=1), False),
        (incident(Reason.EXIT_CODE, exit_code=1, rule="rules[0]", action=Action.IGNORE, level="Pod"), False),
        (incident(Reason.OOM_KILLED), False),
        (incident(Reason.CORRUPTION), False),
        (incident(Reason.HANG), False),
    ],
)
def test_only_what_gangctl_puts_down_to_the_node_or_its_device_is_a_fault(one: Incident, *, counts: bool) -> None:
    (found,) = records.findings("a", "g", [one])
    assert found.is_fault is counts
    assert bool(after(found)["n1"].namespaces) is counts
    assert after(found)["n1"].hours[int(NOW // HOUR)] == Hour(0.0, fault=counts, restart=True)


@pytest.mark.parametrize(
    "one",
    [
        incident(Reason.PREEMPTED),
        incident(Reason.NODE_DRAINED),
        incident(Reason.POD_DELETED),
        incident(Reason.REQUESTED),
        incident(Reason.RESTART_REQUESTED),
        incident(Reason.DEVICE_LOST, alike=True),
        incident(Reason.DEVICE_LOST, suspect="w-1.0"),
        incident(Reason.DEVICE_LOST, node=None),
        incident(Reason.DEVICE_LOST).model_copy(update={"settled": False}),
    ],
)
def test_disruptions_requests_and_what_is_not_settled_say_nothing(one: Incident) -> None:
    assert list(records.findings("a", "g", [one])) == []


def test_a_node_that_fails_in_three_gangs_is_avoided_by_a_fourth() -> None:
    three = [fault(gang=f"g{at}") for at in range(3)]
    assert records.avoided(after(*three[:2]), "a", NOW) == ()
    assert records.avoided(after(*three), "a", NOW) == ("n1",)
    apart = [fault(namespace=name) for name in ("a", "b", "c")]
    assert records.avoided(after(*apart), "d", NOW) == ("n1",)
    assert records.avoided(after(*apart[:2]), "d", NOW) == ()


def test_a_clock_that_was_ahead_for_a_moment_hides_no_fault_afterwards() -> None:
    ahead = NOW + 365 * DAY
    known = records.pruned(after(fault(time=ahead), now=ahead), NOW)
    assert known["n1"].last_fault == NOW, "so that a check can clear it"
    assert records.with_findings(known, [fault(time=ahead)], NOW) == known, "its own fault has been counted"
    known = records.with_findings(known, [fault()], NOW)
    assert known["n1"].namespaces == {"a": 2.0}


def test_one_gang_counts_once_a_day_by_its_name() -> None:
    again = [fault(time=NOW - at) for at in (3 * HOUR, 2 * HOUR, HOUR)]
    assert after(*again)["n1"].namespaces == {"a": 1.0}
    tomorrow = records.with_findings(after(*again), [fault(time=NOW + DAY)], NOW + DAY)
    assert tomorrow["n1"].kinds == {Reason.DEVICE_LOST: pytest.approx(1 + 2 ** (-1 / 7))}


@given(st.permutations([fault(gang=f"g{at}", time=NOW - 60 * at) for at in range(3)]), st.integers(1, 3))
def test_to_look_again_counts_nothing_twice(found: Sequence[Finding], times: int) -> None:
    once = after(*found)
    again = once
    for _ in range(times):
        again = records.with_findings(again, found, NOW)
    assert again is once
    assert records.with_findings(stored.read(stored.write(once, NOW)), found, NOW)["n1"].kinds == once["n1"].kinds


def test_an_incident_whose_day_is_forgotten_does_not_count() -> None:
    made = after(fault(time=NOW - 2 * DAY), fault("n2"))
    assert [name for name, one in made.items() if one.namespaces] == ["n2"]


tenants = st.lists(
    st.builds(
        fault,
        node=st.sampled_from(["n1", "n2"]),
        namespace=st.just("evil"),
        gang=st.integers(0, 40).map("g{}".format),
        kind=st.sampled_from([Reason.DEVICE_LOST, Reason.STUCK, Reason.NODE_LOST]),
        time=st.floats(NOW - 3 * DAY, NOW),
    ),
    max_size=80,
)


@given(tenants)
def test_a_tenant_blackens_a_node_for_itself_only(attack: list[Finding]) -> None:
    made: Records = {}
    for one in sorted(attack, key=lambda one: one.time):
        made = records.with_findings(made, [one], one.time)
    assert records.avoided(made, "victim", NOW) == ()
    for node, record in made.items():
        assert record.score(NOW) <= records.AVOIDED / 3 + 1e-9, node
    with_one = records.with_findings(made, [fault(namespace="b")], NOW)
    assert records.avoided(with_one, "victim", NOW) == (), "with an honest fault it still takes a third namespace"


@given(tenants)
def test_a_tenant_keeps_no_fault_of_others_from_counting(attack: list[Finding]) -> None:
    made = records.with_findings({}, [one._replace(time=NOW) for one in attack], NOW)
    made = records.with_findings(made, [fault(namespace=name) for name in ("b", "c", "d")], NOW)
    assert records.avoided(made, "victim", NOW) == ("n1",)


def test_a_week_halves_the_score_and_a_repair_clears_it() -> None:
    made = after(*(fault(gang=f"g{at}") for at in range(4)))["n1"]
    assert made.score(NOW, "a") == 4.0
    assert made.score(NOW + HALF_LIFE_SECONDS, "a") == pytest.approx(2.0)
    assert made.at(NOW + HALF_LIFE_SECONDS).score(NOW + HALF_LIFE_SECONDS, "a") == pytest.approx(2.0)
    cleared = records.with_findings({"n1": made.cleared()}, [fault(gang="g1")], NOW)
    assert cleared["n1"].score(NOW, "a") == 0.0, "what was counted before the repair isn't counted again"
    assert records.with_findings(cleared, [fault(namespace="b")], NOW)["n1"].score(NOW, "b") == 1.0
    assert records.pruned({"n1": NodeRecord(NOW)}, NOW) == {}


def test_names_are_bounded() -> None:
    found = [
        fault(namespace=f"ns{at}", gang=f"g{more}")._replace(device=f"gpu-{at}")
        for at in range(20)
        for more in range(9)
    ]
    made = after(*found)["n1"]
    assert {len(made.devices), len(made.namespaces)} == {records.MOST_NAMES}
    assert len(made.gangs) == 64
    assert max(made.gangs.values()) == int(NOW // DAY)


hours = st.dictionaries(
    st.integers(int(NOW // HOUR) - 60, int(NOW // HOUR)),
    st.builds(Hour, st.integers(0, 6).map(lambda one: one * 600.0), fault=st.booleans(), restart=st.booleans()),
)


@given(st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), hours), tenants)
def test_what_is_stored_is_read_as_the_same(given_hours: dict[str, dict[int, Hour]], faults: list[Finding]) -> None:
    made = {name: NodeRecord(NOW, hours=its) for name, its in given_hours.items()}
    kept = records.pruned(records.with_findings(made, faults, NOW), NOW)
    found = stored.read(stored.write(kept, NOW))
    for name, one in kept.items():
        seen = {hour: its for hour, its in one.hours.items() if its != Hour()}
        if name in found:
            assert found[name].hours == seen
            assert (found[name].kinds, found[name].gangs) == (one.kinds, one.gangs)


def fleet(nodes: int) -> Records:
    observed = {hour: Hour(HOUR) for hour in range(int(NOW // HOUR) - 47, int(NOW // HOUR) + 1)}
    made: Records = {f"gpu-node-{at:05}.example.internal": NodeRecord(NOW, hours=observed) for at in range(nodes)}
    bad = [fault(node=f"gpu-node-{at:05}.example.internal", gang=f"g{more}") for at in range(9) for more in range(4)]
    return records.with_findings(made, bad, NOW)


@pytest.mark.parametrize(("nodes", "kept"), [(100, 48), (2000, 48), (3000, 24), (3500, 12), (10_000, 0)])
def test_what_does_not_fit_is_left_out_for_all_nodes_alike(nodes: int, kept: int) -> None:
    text = stored.write(fleet(nodes), NOW)
    assert len(text) <= stored.MOST_BYTES
    found = stored.read(text)
    assert {len(one.hours) for one in found.values()} == {kept}
    assert len(records.avoided(found, "a", NOW)) == 9


def test_when_all_nodes_are_bad_the_worst_are_kept() -> None:
    bad = [
        fault(node=f"gpu-node-{at:05}.example.internal", namespace=f"team-{more}", gang=f"a-gang-of-{more}")
        for at in range(4000)
        for more in range(1 + (at < 100))
    ]
    found = stored.read(stored.write(after(*bad), NOW))
    assert 500 < len(found) < 2000
    assert {f"gpu-node-{at:05}.example.internal" for at in range(100)} <= set(found)
    assert len(records.avoided(found, "x", NOW)) <= records.MOST_AVOIDED


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"time":"x","hour":1,"faults":{},"hours":{}}', '{"hours":{}}', "null"]
)
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="errors"):
        stored.read(text)


def test_fields_of_a_newer_release_are_skipped() -> None:
    document = json.loads(stored.write(after(fault()), NOW))
    document["more"] = document["faults"]["n1"]["more"] = {"x": 1}
    assert stored.read(json.dumps(document))["n1"].namespaces == {"a": 1.0}


def test_what_two_writers_saw_is_joined() -> None:
    hour = int(NOW // HOUR)
    ours = {"n1": NodeRecord(NOW, namespaces={"a": 3.0}, hours={hour: Hour(60.0, fault=True)})}
    theirs = {"n1": NodeRecord(NOW, hours={hour: Hour(90.0), hour - 1: Hour(30.0)}), "n2": NodeRecord(NOW)}
    made = records.merged(theirs, ours)
    assert made["n1"].namespaces == {}, "their weights count; ours are counted anew from the gangs"
    assert made["n1"].hours == {hour: Hour(90.0, fault=True), hour - 1: Hour(30.0)}
    assert "n2" in made


def test_time_under_gangs_adds_up_to_an_hour_at_most() -> None:
    made = records.with_observed({}, 5, {"n1": 2000.0})
    made = records.with_observed(made, 5, {"n1": 2000.0, "n2": 1.0})
    assert made["n1"].hours == {5: Hour(HOUR)}
    assert made["n2"].hours == {5: Hour(1.0)}


def checked(time: float = NOW - 60, node: str = "n1", failed: str = "n2") -> CheckResult:
    bad = [{"member": "w-1", "node": failed}] if failed else []
    made = {"name": "disk", "result": "Passed", "nodes": [node], "failed": bad, "time": time}
    return CheckResult.model_validate(made)


def test_checks_are_shown_and_never_scored() -> None:
    made = records.with_checks(after(fault()), [checked(NOW - 120), checked()], NOW)
    assert (made["n1"].checks, made["n2"].checks) == ({"Passed": 2.0}, {"Failed": 2.0})
    assert {name: one.score(NOW, "a") for name, one in made.items()} == {"n1": 1.0, "n2": 0.0}
    for _ in range(3):
        made = stored.read(stored.write(made, NOW))
        again = records.with_checks(made, [checked(NOW - 120), checked(NOW - 59.5), checked(NOW + 60)], NOW)
        assert [again[name].checks for name in ("n1", "n2")] == [made[name].checks for name in ("n1", "n2")]
    later = records.pruned(made, NOW + HALF_LIFE_SECONDS)
    assert later["n1"].checks == {"Passed": pytest.approx(1.0, rel=1e-3)}


def test_checks_are_the_first_to_be_left_out() -> None:
    this = int(NOW // HOUR)
    made: Records = {f"gpu-node-{at:05}": NodeRecord(NOW, hours={this: Hour(HOUR)}) for at in range(3000)}
    made = records.with_checks(made, [checked(node=name, failed="") for name in made], NOW)
    found = stored.read(stored.write(made, NOW))
    assert len(found) == 3000
    assert not any(one.checks for one in found.values())


def test_what_workers_and_their_checks_say_counts_against_no_node() -> None:
    for reason in (Reason.CORRUPTION, Reason.CHECK_FAILED):
        (found,) = records.findings("a", "g", [incident(reason)])
        assert not after(found)["n1"].namespaces
