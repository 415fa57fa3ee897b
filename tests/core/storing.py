"""What the API server does with a status: it stores what the CRD's own schema allows, and gives it back.

    problem(value) = "" <=> every field is in the schema, and every value keeps its bounds

The schema is compiled once, so that every status of a simulated life can be checked. A keyword that isn't known here
must not be passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from gangctl.api.status import Status

CRD: Final = Path(__file__).parents[2] / "crds" / "gangctl.io_gangjobs.yaml"
WORST: Final = 128 * 1024
"""Bytes of a status."""
INT64: Final = 2**63
KNOWN: Final = {
    "type",
    "description",
    "format",
    "enum",
    "maxLength",
    "properties",
    "required",
    "items",
    "maxItems",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
}
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").fullmatch

Check = Callable[[Any], str]
"""What is wrong with a value, beginning with its path; empty: nothing."""


@cache
def schema() -> dict[str, Any]:
    """The schema of a status."""
    versions = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    found: dict[str, Any] = versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


@cache
def _status() -> Check:
    return _compiled(schema())


def problem(value: Any) -> str:
    """What the API server has against this status; empty: nothing."""
    return _status()(value)


def stored_again(status: Status, largest: int = WORST) -> Status:
    """The status as it is read after its write.

    Raises:
        ValueError: it can't be stored, or another one is read.
    """
    text = status.model_dump_json(by_alias=True, exclude_none=True)
    size, value = len(text.encode()), json.loads(text)
    if size > largest:
        raise ValueError(f"it has {size} bytes: { {name: len(json.dumps(one)) for name, one in value.items()} }")
    wrong = problem(value)
    if wrong:
        raise ValueError(f"the schema refuses status{wrong}")
    read = Status.model_validate_json(text)
    if read != status:
        raise ValueError("it is read back as another status")
    return read


def _compiled(node: dict[str, Any]) -> Check:
    unknown = set(node) - KNOWN
    assert not unknown, f"keywords that are not checked: {unknown}"
    match node["type"]:
        case "object":
            return _object(node)
        case "array":
            return _array(node)
        case "string":
            return _string(node)
        case "integer":
            return lambda value: "" if type(value) is int and -INT64 <= value < INT64 else f": {value!r} is no int64"
        case "number":
            return lambda value: "" if type(value) in {int, float} else f": {value!r} is no number"
        case "boolean":
            return lambda value: "" if type(value) is bool else f": {value!r} is no boolean"
    raise AssertionError(f"type {node['type']} is not checked")


def _object(node: dict[str, Any]) -> Check:
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return lambda value: "" if type(value) is dict else f": {value!r} is no object"
    fields = {name: _compiled(below) for name, below in node["properties"].items()}
    required = frozenset(node.get("required", ()))

    def check(value: Any) -> str:
        if type(value) is not dict:
            return f": {value!r} is no object"
        for name, one in value.items():
            below = fields.get(name)
            wrong = ": unknown" if below is None else below(one)
            if wrong:
                return f".{name}{wrong}"
        return "" if required <= value.keys() else f": without {sorted(required - value.keys())}"

    return check


def _array(node: dict[str, Any]) -> Check:
    item, most, keys = _compiled(node["items"]), node["maxItems"], node.get("x-kubernetes-list-map-keys", ())

    def check(value: Any) -> str:
        if type(value) is not list:
            return f": {value!r} is no list"
        if len(value) > most:
            return f": {len(value)} items, more than {most}"
        for at, one in enumerate(value):
            wrong = item(one)
            if wrong:
                return f"[{at}]{wrong}"
        unique = {tuple(one[key] for key in keys) for one in value} if keys else value
        return "" if len(unique) == len(value) else f": two items have the same {list(keys)}"

    return check


def _string(node: dict[str, Any]) -> Check:
    most, choice, is_time = node.get("maxLength", WORST), node.get("enum"), node.get("format") == "date-time"

    def check(value: Any) -> str:
        if type(value) is not str:
            return f": {value!r} is no string"
        if len(value) > most:
            return f": {len(value)} characters, more than {most}"
        if choice is not None and value not in choice:
            return f": {value!r} is not in {choice}"
        return f": {value!r} is no time" if is_time and not _DATE_TIME(value) else ""

    return check
