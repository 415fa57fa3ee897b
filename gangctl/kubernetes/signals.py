"""The table of node signals: which conditions, taints and labels of nodes count, and what is done about each.

``signals.yaml`` has the default rows with their sources. The chart's value ``nodeSignals`` adds rows, or replaces those
of the same name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.alias_generators import to_camel

from gangctl.api.model import escaped
from gangctl.core.facts.world import NodeAnswer, Shortage

MAX_ROWS: Final = 200
MAX_WORDS: Final = 160
"""Characters of what a node says that are shown."""

NodeSignalName = Annotated[str, Field(min_length=1, max_length=316)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class ConditionRow(_Part):
    """A condition with this status, and with these words in its message if some are given."""

    type: NodeSignalName
    status: Literal["True", "False", "Unknown"] = "True"
    message: str = ""


class TaintRow(_Part):
    """A taint with this key, and with this effect if one is given."""

    key: NodeSignalName
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class LabelRow(_Part):
    """A label with one of these values, or with a value that isn't one of these."""

    key: NodeSignalName
    values: tuple[str, ...] = ()
    not_values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_two(self) -> LabelRow:
        if bool(self.values) is bool(self.not_values):
            raise ValueError("a label needs values or notValues")
        return self


class AllocatableRow(_Part):
    """Fewer devices are allocatable than the node has: one of these resources, or any if none is named."""

    resources: tuple[str, ...] = ()


class SignalRow(_Part):
    """What an agent writes at a node, and what is done about it."""

    name: NodeSignalName
    condition: ConditionRow | None = None
    taint: TaintRow | None = None
    label: LabelRow | None = None
    allocatable: AllocatableRow | None = None
    answer: NodeAnswer | Literal["Off"]
    set_by: str = ""
    means: str = ""
    source: str = ""

    @model_validator(mode="after")
    def _one_of_three(self) -> SignalRow:
        if sum(one is not None for one in (self.condition, self.taint, self.label, self.allocatable)) != 1:
            raise ValueError(f"row {self.name!r} needs one of condition, taint, label and allocatable")
        return self


class NodeCondition(NamedTuple):
    """A condition as it is written at a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    time: float = 0.0
    """When its status changed, in seconds since the epoch; 0 if that isn't said."""


class ShownSignal(NamedTuple):
    """What a node shows that the table knows."""

    name: str
    """Of the row."""
    answer: NodeAnswer
    what: str
    time: float | None
    """When it came, as its writer says, in seconds since the epoch; None where that isn't written."""
    shortage: Shortage | None = None


_ROWS: Final = TypeAdapter(Annotated[tuple[SignalRow, ...], Field(max_length=MAX_ROWS)])
_ORDER: Final = list(NodeAnswer)


class SignalTable:
    """The rows, so that those of a node are found at once."""

    def __init__(self, rows: Iterable[SignalRow]) -> None:
        """``rows``: no two of the same name. Those with the answer Off are left out."""
        self._conditions = defaultdict[tuple[str, str], list[tuple[str, ConditionRow, NodeAnswer]]](list)
        self._taints: list[tuple[str, TaintRow, NodeAnswer]] = []
        self._labels: list[tuple[str, LabelRow, NodeAnswer]] = []
        self._allocatable: list[tuple[str, AllocatableRow, NodeAnswer]] = []
        for row in rows:
            if not isinstance(row.answer, NodeAnswer):
                continue
            if row.condition is not None:
                self._conditions[row.condition.type, row.condition.status].append((row.name, row.condition, row.answer))
            elif row.taint is not None:
                self._taints.append((row.name, row.taint, row.answer))
            elif row.label is not None:
                self._labels.append((row.name, row.label, row.answer))
            elif row.allocatable is not None:
                self._allocatable.append((row.name, row.allocatable, row.answer))

    def shown(
        self,
        conditions: Iterable[NodeCondition],
        taints: Iterable[tuple[str, str]],
        labels: Mapping[str, str],
        devices: Iterable[tuple[str, int, int]] = (),
    ) -> tuple[ShownSignal, ...]:
        """Return what a node shows, the strongest answer first.

        Args:
            conditions: of the node.
            taints: (key, effect).
            labels: of the node.
            devices: (name of an extended resource, how many the node has, how many are allocatable).
        """
        found = [
            ShownSignal(
                name, answer, _words(f"condition {one.type}={one.status}", row.message or one.reason), one.time or None
            )
            for one in conditions
            for name, row, answer in self._conditions.get((one.type, one.status), ())
            if row.message in one.message
        ]
        found += [
            ShownSignal(name, answer, _words(f"taint {key}:{effect}"), None)
            for key, effect in taints
            for name, row, answer in self._taints
            if row.key == key and row.effect in {"", effect}
        ]
        found += [
            ShownSignal(name, answer, _words(f"label {row.key}={value}"), None)
            for name, row, answer in self._labels
            if (value := labels.get(row.key)) is not None
            and (value in row.values if row.values else value not in row.not_values)
        ]
        found += [
            ShownSignal(name, answer, f"allocatable {kind}={left} of {total}", None, Shortage(kind, left))
            for kind, total, left in devices
            if left < total
            for name, row, answer in self._allocatable
            if kind in row.resources or not row.resources
        ]
        return tuple(sorted(found, key=lambda one: (_ORDER.index(one.answer), one.what)))


@cache
def default_rows() -> tuple[SignalRow, ...]:
    """The rows of the package."""
    return _ROWS.validate_python(yaml.safe_load(files(__package__).joinpath("signals.yaml").read_text("utf-8")))


def rows_with(changes: Sequence[Mapping[str, Any]]) -> tuple[SignalRow, ...]:
    """Add rows to the default rows; a row that has the name of another replaces it.

    Raises:
        ValueError: they can't be read.
    """
    changed = _ROWS.validate_python(changes)
    return tuple({row.name: row for row in (*default_rows(), *changed)}.values())


def _words(what: str, reason: str = "") -> str:
    return escaped(f"{what} ({reason})" if reason else what)[:MAX_WORDS]
