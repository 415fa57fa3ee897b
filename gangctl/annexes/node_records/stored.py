"""The records of nodes as JSON in a ConfigMap, of at most MOST_BYTES. Pure.

The rule: what doesn't fit is left out evenly, so that no node looks better or worse for it: first the checks, then the
oldest hours of all nodes, and only then the nodes with the lowest scores. An hour of a node is a digit of base 36: tens
of minutes of observation, 7 more with a fault, 14 more with a restart; the last digit is the hour of ``hour``.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from gangctl.annexes.node_records.records import HOUR, KEPT_HOURS, TENTH, Hour, NodeRecord, Records, pruned
from gangctl.api.model import rfc3339
from gangctl.kubernetes.containers import epoch_time
from gangctl.kubernetes.schema import Raw

KEY: Final = "records.json"
"""Of the ConfigMap."""
MOST_BYTES: Final = 200_000
_WINDOWS: Final = (KEPT_HOURS, 24, 12, 6, 0)
"""Hours that are kept, the first that fits."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_FAULT: Final = 7
_RESTART: Final = 14


class _Faults(Raw):
    kinds: Mapping[str, float] = {}
    devices: Mapping[str, float] = {}
    namespaces: Mapping[str, float] = {}
    gangs: Mapping[str, int] = {}
    last: datetime | None = None
    checks: Mapping[str, float] = {}
    checked: datetime | None = None


class _Document(Raw):
    time: datetime
    hour: int
    faults: Mapping[str, _Faults]
    hours: Mapping[str, str]


def name_of_map(controller: str) -> str:
    """The ConfigMap of a controller, by the name of its Lease."""
    return f"{controller}-node-records"


def write(records: Records, now: float) -> str:
    """The records as JSON of at most MOST_BYTES."""
    text = _json(pruned(records, now), now)
    if len(text) <= MOST_BYTES:
        return text
    records = {name: replace(one, checks={}, last_check=0.0) for name, one in records.items()}
    for hours in _WINDOWS:
        kept = pruned(records, now, hours)
        text = _json(kept, now)
        if len(text) <= MOST_BYTES:
            return text
    worst = sorted(kept, key=lambda node: (-kept[node].score(now), node))
    while len(text) > MOST_BYTES:
        worst = worst[: len(worst) * MOST_BYTES // len(text)]
        text = _json({node: kept[node] for node in worst}, now)
    return text


def read(text: str) -> Records:
    """The records.

    Raises:
        ValueError: they can't be read.
    """
    try:
        found = _Document.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{error.errors()[0]['msg']} ({error.error_count()} errors)") from None
    return {
        name: NodeRecord(
            time=found.time.timestamp(),
            kinds=its.kinds,
            devices=its.devices,
            namespaces=its.namespaces,
            gangs=its.gangs,
            last_fault=epoch_time(its.last),
            hours=_read_hours(found.hours.get(name, ""), found.hour),
            checks=its.checks,
            last_check=epoch_time(its.checked),
        )
        for name in {**found.faults, **found.hours}
        for its in (found.faults.get(name, _Faults()),)
    }


def _json(records: Records, now: float) -> str:
    newest = int(now // HOUR)
    faults = {name: _faults(one) for name, one in sorted(records.items()) if one.namespaces or one.gangs or one.checks}
    hours = {name: _hours(one.hours, newest) for name, one in sorted(records.items()) if one.hours}
    # A line for each node, for those who look at the ConfigMap.
    parts = (f'"{key}":{{\n{_lines(nodes)}\n}}' for key, nodes in (("faults", faults), ("hours", hours)))
    return f'{{"time":"{_time(now)}","hour":{newest},\n{",".join(parts)}}}\n'


def _lines(nodes: Mapping[str, object]) -> str:
    return ",\n".join(f"{json.dumps(name)}:{json.dumps(one, separators=(',', ':'))}" for name, one in nodes.items())


def _time(seconds: float) -> str:
    return f"{rfc3339(seconds)[:19]}Z"


def _faults(record: NodeRecord) -> dict[str, object]:
    weights = {
        "kinds": record.kinds,
        "devices": record.devices,
        "namespaces": record.namespaces,
        "checks": record.checks,
    }
    made = {key: {name: round(weight, 3) for name, weight in one.items()} for key, one in weights.items() if one}
    times = {"last": record.last_fault, "checked": record.last_check}
    return {**made, "gangs": record.gangs, **{key: _time(one) for key, one in times.items() if one}}


def _hours(hours: Mapping[int, Hour], newest: int) -> str:
    return "".join(_digit(hours.get(one, Hour())) for one in range(min(hours), newest + 1))


def _digit(hour: Hour) -> str:
    return _DIGITS[min(6, round(hour.seconds / TENTH)) + _FAULT * hour.fault + _RESTART * hour.restart]


def _read_hours(digits: str, newest: int) -> Mapping[int, Hour]:
    found = ((newest - at, _DIGITS.find(digit)) for at, digit in enumerate(reversed(digits[-KEPT_HOURS:])))
    return {hour: _hour(digit) for hour, digit in found if digit > 0}


def _hour(digit: int) -> Hour:
    rest, restart = digit % _RESTART, digit >= _RESTART
    return Hour(rest % _FAULT * TENTH, fault=rest >= _FAULT, restart=restart)
