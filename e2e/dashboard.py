"""The chart's Grafana dashboard: its panels, their queries, and what a Prometheus answers to them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.prometheus import Prometheus

REPOSITORY = Path(__file__).parents[1]
DASHBOARD: Final = REPOSITORY / "charts" / "gangctl" / "files" / "dashboard.json"
REFERENCE: Final = REPOSITORY / "docs" / "reference" / "metrics.md"
COLUMNS: Final = 24
"""Of Grafana's grid."""
HOUR: Final = 3600


@dataclass(frozen=True)
class Target:
    """A query of a panel."""

    expression: str
    """With Grafana's variables."""
    legend: str
    """What a series is called; it names labels: ``{{phase}}``."""


@dataclass(frozen=True)
class Panel:
    """A panel, in the units of Grafana's grid."""

    title: str
    kind: str
    """``row``, ``stat`` or ``timeseries``."""
    unit: str
    most: float | None
    """The end of the axis, if it is fixed."""
    decimals: int | None
    stacked: bool
    left: int
    top: int
    width: int
    height: int
    targets: tuple[Target, ...]

    def named(self, target: Target) -> str:
        """What one of its queries is called."""
        return f"{self.title}: {target.legend}"


@dataclass(frozen=True)
class Series:
    """What a query found under one name: times and values, without those that are not numbers."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Range:
    """What a dashboard shows: from when to when in seconds since the epoch, and the distance of two points."""

    begin: float
    end: float
    step: float


def panels() -> tuple[Panel, ...]:
    """All panels, in the order of the file."""
    return tuple(_panel(one) for one in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


def _panel(one: dict[str, Any]) -> Panel:
    shown = one.get("fieldConfig", {}).get("defaults", {})
    place = one["gridPos"]
    return Panel(
        title=one["title"],
        kind=one["type"],
        unit=shown.get("unit", ""),
        most=shown.get("max"),
        decimals=shown.get("decimals"),
        stacked=shown.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        left=place["x"],
        top=place["y"],
        width=place["w"],
        height=place["h"],
        targets=tuple(Target(target["expr"], target["legendFormat"]) for target in one.get("targets", ())),
    )


def filled(expression: str, seconds: int = HOUR) -> str:
    """The query as Prometheus gets it from Grafana, for all namespaces and a range of so many seconds."""
    return expression.replace("$namespace", ".*").replace("$__range", f"{seconds}s")


def queries() -> list[str]:
    """All PromQL of the dashboard and of the reference."""
    found = [target.expression for panel in panels() for target in panel.targets]
    found += re.findall(r"^\| `gangctl_.*\| `([^|]+)` \|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    return [filled(query) for query in found]


def answer(seen: Prometheus, target: Target, shown: Range) -> list[Series]:
    """The series that a query finds, those without a number left out."""
    expression = filled(target.expression, round(shown.end - shown.begin))
    found = [
        Series(_name(target.legend, labels), tuple(point for point in points if math.isfinite(point[1])))
        for labels, points in seen.over(expression, shown.begin, shown.end, shown.step)
    ]
    return sorted((one for one in found if one.points), key=lambda one: one.name)


def _name(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)


def unanswered(seen: Prometheus, shown: Range) -> set[str]:
    """The names of the queries that find no number."""
    return {panel.named(target) for panel in panels() for target in panel.targets if not answer(seen, target, shown)}
