"""The check of what can be stored agrees with a validator of JSON Schema, also about statuses that can't be."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema
import pytest

from tests.core.storing import problem, schema, stored_again
from tests.simulation.seeds import drawn

KINDS: tuple[Any, ...] = ("x" * 9000, "New", -1, 2**64, 0.5, True, None, {}, [], [{}] * 70)

SAMPLED = 13
"""Each one of so many: the validator of JSON Schema is slow."""


def broken(value: Any) -> Iterator[None]:
    """The value with one thing in it changed, again and again, and back."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        kept = value[key]
        if isinstance(kept, dict | list):
            yield from broken(kept)
        for other in KINDS:
            value[key] = copy.deepcopy(other)
            yield
        value[key] = kept
    if isinstance(value, dict):
        for key in list(value):
            kept = value.pop(key)
            yield
            value[key] = kept


def test_the_check_of_a_status_agrees_with_json_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    status = drawn(4).run().universe.status
    value = json.loads(status.model_dump_json(by_alias=True, exclude_none=True))
    assert stored_again(status) == status
    for _ in islice(broken(value), None, None, SAMPLED):
        found = problem(value)
        if any(text in found for text in (": unknown", "the same", "is no int64", "is no time", "is no number")):
            continue  # Kubernetes' own: a validator of JSON Schema doesn't know it.
        assert bool(found) == (not validator.is_valid(value)), found
    assert not problem(value)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"attempt": True}, ".attempt: True is no int64"),
        ({"attempt": 2**63}, f".attempt: {2**63} is no int64"),
        ({"phaseTime": "yesterday"}, ".phaseTime: 'yesterday' is no time"),
        ({"made": "up"}, ".made: unknown"),
    ],
)
def test_what_only_kubernetes_refuses_is_refused(value: dict[str, Any], wrong: str) -> None:
    assert problem(value) == wrong


def test_two_conditions_of_one_type_are_refused() -> None:
    one = json.loads(drawn(4).run().universe.status.model_dump_json(by_alias=True))["conditions"][0]
    assert problem({"conditions": [one, one]}) == ".conditions: two items have the same ['type']"
