"""Which nodes are suspected, and for how long."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangctl.annexes.node_records import records, suspicion
from gangctl.annexes.node_records.records import AVOIDED, DAY, HOUR, Finding, NodeRecord, Records
from gangctl.kubernetes.objects import Node

NOW = 20_000 * DAY


def bad(now: float, *namespaces: str, gangs: int = 1) -> NodeRecord:
    """The record of a node that has just failed in gangs of these namespaces."""
    found = [
        Finding("n", name, f"g{at}", "DeviceLost", "", now, is_fault=True) for name in namespaces for at in range(gangs)
    ]
    return records.with_findings({}, found, now)["n"]


def there(count: int, **fields: Any) -> list[Node]:
    return [Node(name=f"n{at}", **fields) for at in range(1, count + 1)]


def suspects(
    made: Records, nodes: list[Node], announced: tuple[str, ...] = (), namespaces: int = 3, days: float = 0
) -> set[str]:
    return set(suspicion.suspected(made, nodes, announced, NOW + days * DAY, namespaces))


def test_a_node_is_suspected_after_faults_in_so_many_namespaces() -> None:
    one_team, three_teams = bad(NOW, "a", gangs=4), bad(NOW, "a", "b", "c")
    made = {"n1": one_team, "n2": three_teams}
    assert suspects(made, there(40)) == {"n2"}
    assert suspects(made, there(40), namespaces=1) == {"n1", "n2"}
    assert suspects({"n1": bad(NOW, "a", "b", gangs=4)}, there(40)) == set()
    assert suspects({"n1": bad(NOW, "a", "b", gangs=4)}, there(40), namespaces=2) == {"n1"}


def test_a_suspicion_ends_half_as_high_as_it_begins_and_with_the_record() -> None:
    made = {"n1": bad(NOW, "a", "b", "c")}
    assert suspects(made, there(9), days=3) == set(), "it has faded before it was announced"
    assert suspects(made, there(9), ("n1",), days=6) == {"n1"}
    assert suspects(made, there(9), ("n1",), days=10) == set()
    assert suspects({"n1": made["n1"].cleared()}, there(9), ("n1",)) == set()
    assert suspects({}, there(9), ("n1",)) == set()


def test_a_node_that_is_gone_or_was_made_anew_is_not_suspected() -> None:
    made = {"n1": bad(NOW, "a", "b", "c"), "gone": bad(NOW, "a", "b", "c")}
    assert suspects(made, there(9), ("gone",)) == {"n1"}
    assert suspects(made, there(9, created_at=NOW + 1), ("n1",)) == set()


weights = st.dictionaries(st.integers(1, 40).map("n{}".format), st.integers(0, 4), max_size=40)


@given(weights, st.integers(1, 40), st.sets(st.integers(1, 40).map("n{}".format), max_size=6))
def test_few_nodes_are_suspected_at_once_and_a_new_look_changes_nothing(
    found: dict[str, int], count: int, announced: set[str]
) -> None:
    made = {name: bad(NOW, "a", gangs=gangs) for name, gangs in found.items() if gangs}
    nodes = there(count)
    now_announced = suspicion.suspected(made, nodes, announced, NOW, 1)
    assert len(now_announced) <= max(1, count // suspicion.SHARE, len(announced))
    assert {one for one in now_announced if one not in announced} <= {
        name for name, one in made.items() if one.score(NOW, "a") >= AVOIDED
    }
    assert set(suspicion.suspected(made, nodes, now_announced, NOW, 1)) == set(now_announced)


def test_the_worst_of_too_many_are_suspected() -> None:
    made = {"n1": bad(NOW, "a", gangs=3), "n2": bad(NOW, "a", "b", gangs=4), "n3": bad(NOW, "a", gangs=3)}
    assert suspects(made, there(9), namespaces=1) == {"n2"}
    assert suspects(made, there(9), ("n3",), namespaces=1) == {"n3"}, "it was announced before"


def test_a_passed_check_clears_what_its_own_namespace_has_met() -> None:
    later = NOW + HOUR
    made = {"n1": bad(NOW, "a", "b")}
    assert records.with_passed(made, "n1", "a", later - 1) is made, "faults come and go"
    assert records.with_passed(made, "n1", "c", later) is made
    passed = records.with_passed(made, "n1", "a", later)
    assert passed["n1"].namespaces == {"b": 1.0}
    assert passed["n1"].kinds == {"DeviceLost": 1.0}
    assert records.with_passed(passed, "n1", "a", later) is passed
    again = Finding("n1", "a", "other", "DeviceLost", "", later + 1, is_fault=True)
    faulty = records.with_findings(passed, [again], later + 1)
    assert records.with_passed(faulty, "n1", "a", later) is faulty, "an old check doesn't clear a new fault"
    assert records.with_passed(passed, "n1", "b", later)["n1"].score(NOW) == 0


def test_long_names_of_nodes_have_names_of_requests() -> None:
    names = [suspicion.request_name(f"{at}{'n' * 252}") for at in "ab"]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 64
    assert suspicion.request_name("node-7") == "gangctl-node-7"
