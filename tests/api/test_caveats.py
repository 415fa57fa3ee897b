"""Fields without effect in local mode are in one list, and the list only gets shorter."""

from __future__ import annotations

import pytest

from gangctl.api.gangjob import NOT_IN_LOCAL_MODE
from tests.api.apiserver import nodes, schema
from tests.pages.gangjob import reference

KNOWN_IN_LOCAL_MODE = {
    "spec.podFailurePolicy.rules[].onDeviceHealth",
    "spec.podFailurePolicy.rules[].onPodConditions",
    "spec.recovery.avoidNodeSeconds",
    "spec.recovery.schedulingTimeoutSeconds",
    "spec.ttlSecondsAfterFinished",
}
"""Remove a field once it works. Never add one: a field without effect stays out of the API."""


def test_the_list_only_gets_shorter() -> None:
    assert set(NOT_IN_LOCAL_MODE) <= KNOWN_IN_LOCAL_MODE


@pytest.mark.parametrize(("path", "sentence"), NOT_IN_LOCAL_MODE.items())
def test_an_entry_is_part_of_the_description_of_its_field(path: str, sentence: str) -> None:
    fields = dict(nodes(schema()))
    assert path in fields, f"{path} is no field"
    assert sentence in fields[path]["description"]
    assert sentence in reference()
