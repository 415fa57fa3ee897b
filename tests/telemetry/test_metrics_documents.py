"""Rules, dashboard and reference speak of metrics that exist, and of all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from gangctl.api.incident import CheckResult
from gangctl.api.status import Checks, Condition, FirstStep, GangPhase, Spent
from tests.telemetry.gangs import NOW, at_fault, gang, later
from tests.telemetry.samples import FakeSources

REPOSITORY = Path(__file__).parents[2]
FILES = REPOSITORY / "charts" / "gangctl" / "files"
REFERENCE = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((FILES / "rules.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
DASHBOARD = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
ROW = re.compile(r"^\| `(gangctl_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|(?: `([^|]+)` \|)?$", re.MULTILINE)
SELECTED = re.compile(r"\b((?:gangctl|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def exposed() -> CollectorRegistry:
    """What a process exposes that has seen everything once."""
    metrics = FakeSources().metrics()
    slow = Condition(type="Degraded", status="True", reason="DeviceDegraded", message="m", last_transition_time=NOW)
    first = FirstStep(attempt=1, step=1, time=NOW)
    running = gang(attempt=1, phase=GangPhase.RUNNING, first_step=first, conditions=(slow,))
    metrics.round_began(running)
    checked = Checks(attempt=2, results=(CheckResult(name="disk", result="Passed", time=NOW),))
    settled = at_fault(2, "node-7", lost_steps=3, lost_seconds=1.0)
    metrics.status_written(
        running,
        later(running, incidents=(settled,), spent=Spent(training=3.0, lost_progress=1.0), checks=checked),
        0.01,
    )
    return metrics.registry


def families() -> dict[str, tuple[str, frozenset[str], str]]:
    """Type, labels and meaning of each metric of gangctl's own, by the name that one asks for."""
    found = {}
    for family in exposed().collect():
        if family.name.startswith("gangctl_"):
            labels = frozenset().union(*(sample.labels for sample in family.samples)) - {"le"}
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, labels, family.documentation)
    return found


def values() -> dict[str, dict[str, set[str]]]:
    """The values of each label, by name of the series."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in exposed().collect():
        for sample in family.samples:
            known = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                known.setdefault(label, set()).add(value)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """All PromQL that is given to users, and where."""
    yield from RECORDED.items()
    for rule in ALERTS:
        query = rule["expr"]
        for name, recorded in RECORDED.items():
            query = query.replace(name, f"({recorded})")
        yield rule["alert"], query
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for name, *_, query in ROW.findall(REFERENCE):
        if query:
            yield name, query


def test_the_reference_lists_every_metric_with_type_labels_and_meaning() -> None:
    documented = {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning, _ in ROW.findall(REFERENCE)
    }
    assert documented == families()
    assert len(documented) == len(re.findall(r"^\| `gangctl_", REFERENCE, re.MULTILINE))
    for name, *_, query in ROW.findall(REFERENCE):
        assert not query or name in query


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_uses_existing_series_labels_and_values(where: str, expression: str) -> None:
    known = values()
    selected = [found for found in SELECTED.findall(expression) if not found[0].endswith("__")]
    assert selected, where
    for name, matchers in selected:
        assert name in known, f"{where}: {name}"
        for label, operator, wanted in MATCHER.findall(matchers):
            assert label in known[name], f"{where}: {name} has no {label}"
            if wanted.startswith("$") or label in ("namespace", "node", "reason"):
                continue
            asked = wanted.split("|") if "~" in operator else [wanted]
            assert set(asked) <= known[name][label], f"{where}: {label}={wanted}"


def test_every_alert_has_a_summary_a_description_and_a_runbook() -> None:
    headings = set(re.findall(r"^### (\w+)$", REFERENCE, re.MULTILINE))
    assert {rule["alert"] for rule in ALERTS} == headings
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "runbook_url"}
        page = "https://gangctl.github.io/gangctl/reference/metrics/"
        assert said["runbook_url"] == f"{page}#{rule['alert'].lower()}"
        assert len(said["description"]) > 100


def test_dashboard_panels_do_not_overlap_and_each_has_a_title_and_a_description() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        squares = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not squares & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= squares
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith(".")
            assert panel["datasource"]["uid"] == "${datasource}"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        name
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
        for name, _ in SELECTED.findall(target["expr"])
    }
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    elsewhere = {"gangctl_gangs_spent_seconds", "gangctl_causes_corrected_total"}
    assert set(families()) - bases == elsewhere
