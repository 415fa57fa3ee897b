"""The table of the lifecycle is complete, and the page in docs/ is made from it."""

from __future__ import annotations

import sys
from inspect import getmembers, isfunction
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gangctl.api.crd import gangjob_schema
from gangctl.api.status import ENDED, GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle import plan
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.table import TRANSITIONS, Transition
from tests.core.scenario import parse, play
from tests.core.test_scenarios import FILES
from tests.pages.lifecycle import condition_names, functions, lifecycle_page

PAGE = Path(__file__).parents[2] / "docs/lifecycle.md"
NAMES = [row.name for row in TRANSITIONS]


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == lifecycle_page(), "make generate"


def test_each_transition_has_one_function_and_each_function_one_transition() -> None:
    moving = [name for name, one in getmembers(plan, isfunction) if "_moved" in one.__code__.co_names]
    assert sorted(NAMES) == moving


@pytest.mark.parametrize("row", TRANSITIONS, ids=NAMES)
def test_a_condition_names_functions_and_fields_that_exist(row: Transition) -> None:
    known = {*functions(), *NAMES}
    for name in condition_names(row):
        assert is_field(name) if "." in name else name in known, name


def is_field(path: str) -> bool:
    node: dict[str, Any] = {"properties": gangjob_schema()["properties"]}
    for part in path.split("."):
        node = node.get("properties", {}).get(part)
        if node is None:
            return False
    return True


def test_every_phase_but_the_first_is_reached_and_none_but_the_ends_is_a_dead_end() -> None:
    assert {row.target for row in TRANSITIONS} == set(GangPhase) - {GangPhase.NEW}
    assert {source for row in TRANSITIONS for source in row.sources} == set(GangPhase) - set(ENDED)


def test_a_decision_for_a_transition_asks_each_function_that_its_condition_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A condition is prose: it must not go on to name what nothing asks any more. The scenarios take every row."""
    called: set[str] = set()
    asked: dict[str, set[str]] = {}
    moved = plan._moved  # noqa: SLF001 - every transition goes through it

    def recorded(row: Transition, gang: Gang, status: Status, **changes: Any) -> Status:
        asked.setdefault(row.name, set()).update(called)
        return moved(row, gang, status, **changes)

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            if frame.f_code is decide.__code__:
                called.clear()
            called.add(frame.f_code.co_name)

    named_functions = {
        row.name: {one for one in condition_names(row) if "." not in one} - set(NAMES) for row in TRANSITIONS
    }
    monkeypatch.setattr(plan, "_moved", recorded)
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        for path in reversed(FILES):
            play(parse(path.read_text()))
            if all(name in asked and functions <= asked[name] for name, functions in named_functions.items()):
                break
    finally:
        sys.setprofile(before)
    assert asked.keys() == set(NAMES)
    assert {name: names - asked[name] for name, names in named_functions.items() if not names <= asked[name]} == {}


def test_a_transition_out_of_a_phase_that_its_row_does_not_name_is_refused() -> None:
    with pytest.raises(AssertionError, match="does not lead out of Succeeded"):
        plan.suspend(Gang(0.0, None, None), Status(phase=GangPhase.SUCCEEDED))  # type: ignore[arg-type]
