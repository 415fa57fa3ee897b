"""The reasons of Events are a promise: the list here is changed on purpose or not at all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangctl.api.events import EVENTS, action, is_warning
from gangctl.api.reasons import Reason
from gangctl.core.record.conditions import PHASE_REASONS
from tests.pages.events import events_page

ROOT = Path(__file__).parents[2]
STABLE = {
    "Warning": {
        "ActionFails",
        "BarrierTimeout",
        "Braked",
        "BudgetExhausted",
        "CheckFailed",
        "CheckFaulty",
        "DeadlineExceeded",
        "DeviceDegraded",
        "DeviceGuardEvicted",
        "DeviceGuardRefused",
        "FailedByRule",
        "GangRecreated",
        "GangsFailTogether",
        "Hang",
        "HoldTimeout",
        "LauncherFlags",
        "ForksLate",
        "PipelineHidesFailure",
        "PreloadFailed",
        "MembersSilent",
        "NoMemberConnects",
        "NoProgress",
        "NoRestorePoint",
        "NodeAtFault",
        "NodeSuspect",
        "ReplacementTimeout",
        "RestartBackOff",
        "RestorePointIgnored",
        "RollingStalled",
        "SignalKept",
        "Smaller",
        "StartFailed",
        "Restarting",
        "StepRejected",
        "TemplateRefused",
        "Unreadable",
        "Unschedulable",
    },
    "Normal": {
        "CauseCorrected",
        "Checking",
        "Gathering",
        "GroupIncomplete",
        "Pending",
        "PodReplaced",
        "Queued",
        "QuotaChanged",
        "RestartWaits",
        "RolesWait",
        "Restarted",
        "Resumed",
        "Running",
        "SpareTookRank",
        "Submitted",
        "Succeeded",
        "Suspended",
        "TemplateAccepted",
        "WorkerOutput",
    },
}
"""Alerts are made of these. Taking one away, or giving it another type, breaks them: say so in the release's notes."""
TELLING = {"plan_write", "plan_hold", "plan_failure", "_give_up", "Settlement", "Event"}
"""What in the core is given the reason of an Event."""


def test_no_reason_of_an_event_was_removed_or_has_another_type() -> None:
    found = {kind: {one.value for one in EVENTS if is_warning(one) is (kind == "Warning")} for kind in STABLE}
    assert found == STABLE


def test_every_reason_that_the_core_or_an_annex_tells_is_in_the_table() -> None:
    files = (file for folder in ("core", "annexes") for file in (ROOT / "gangctl" / folder).rglob("*.py"))
    told = {reason for file in files for reason in _told(file)}
    assert len(told) > 20
    assert told <= set(EVENTS), "a new reason of an Event: add it to gangctl/api/events.py"
    assert set(EVENTS) <= told, "a reason that nothing tells"


def test_the_file_in_docs_is_up_to_date() -> None:
    text = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    assert text == events_page(), "make generate"


def test_every_reason_has_a_row_under_its_type() -> None:
    warnings, _, normal = events_page().partition("## Type Normal")
    for reason in EVENTS:
        assert f"| `{reason}` |" in (warnings if is_warning(reason) else normal)


@pytest.mark.parametrize("reason", list(EVENTS))
def test_every_reason_has_an_action_and_advice(reason: Reason) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+){1,3}", action(reason))
    assert EVENTS[reason].todo.endswith(".")


def test_an_unknown_reason_is_its_own_action_and_no_warning() -> None:
    assert (action("Dancing"), is_warning("Dancing")) == ("Dancing", False)


def test_conditions_and_events_use_the_same_words() -> None:
    assert set(PHASE_REASONS.values()) - {Reason.HELD} <= set(EVENTS)


def _told(file: Path) -> Iterator[Reason]:
    """Reasons in calls of what makes Events, in names that hold one, and in what is said of a degraded gang."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=args) if name in TELLING:
                for argument in args:
                    yield from _reasons(argument)
            case ast.Assign(targets=[ast.Name(id="reason")], value=value) if file.stem in {"gathering", "plan"}:
                yield from _reasons(value)
            case ast.Return(value=ast.Tuple(elts=[first, *_]) | ast.IfExp(body=ast.Tuple(elts=[first, *_]))) if (
                file.stem == "degraded"
            ):
                yield from _reasons(first)


def _reasons(node: ast.expr) -> Iterator[Reason]:
    for one in ast.walk(node):
        match one:
            case ast.Attribute(value=ast.Name(id="Reason"), attr=name):
                yield Reason[name]
