"""Objects that another release has stored: what is ignored, and what must not be acted on."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest

from gangctl.api.status import REVISION, GangPhase
from gangctl.api.stored import read_stored

OBJECT: dict[str, Any] = {
    "apiVersion": "gangctl.io/v1alpha1",
    "kind": "GangJob",
    "metadata": {"name": "g", "namespace": "d", "uid": "u", "resourceVersion": "5"},
    "spec": {
        "roles": [
            {
                "name": "worker",
                "template": {"spec": {"containers": [{"name": "m", "command": ["w"], "ofThePod": 1}], "ofThePod": 1}},
            }
        ],
        "recovery": {"budget": {"type": "Windowed", "maxRestarts": 3}},
    },
    "status": {"phase": "Running", "attempt": 3, "restarts": {"counted": 2}},
}


def of(**status: Any) -> dict[str, Any]:
    made = copy.deepcopy(OBJECT)
    made["status"] |= status
    return made


def test_an_object_of_this_release_ignores_nothing() -> None:
    assert read_stored(OBJECT).ignored == ()


def test_fields_of_a_newer_release_are_ignored_and_named_wherever_they_are() -> None:
    newer = of(aFieldOfTheNextRelease=1)
    newer["status"]["restarts"]["later"] = {"a": 1}
    newer["spec"]["recovery"]["budget"]["perNode"] = 1
    newer["spec"]["roles"][0]["shape"] = "ring"
    found = read_stored(newer)
    assert set(found.ignored) == {
        "status.aFieldOfTheNextRelease",
        "status.restarts.later",
        "spec.recovery.budget.perNode",
        "spec.roles.0.shape",
    }
    assert found.job == read_stored(OBJECT).job
    assert newer["status"]["aFieldOfTheNextRelease"] == 1, "what was given stays as it is"


def test_a_status_that_needs_a_newer_release_is_not_acted_on() -> None:
    assert read_stored(of(readableFrom=REVISION)).job.status.phase is GangPhase.RUNNING
    with pytest.raises(ValueError, match="newer release"):
        read_stored(of(readableFrom=REVISION + 1, more=1))


def test_a_value_that_is_not_valid_is_not_acted_on() -> None:
    with pytest.raises(ValueError, match="Dancing"):
        read_stored(of(phase="Dancing", more=1))


@pytest.mark.parametrize("value", [5, None, "x", [1], {"x": 1}])
@pytest.mark.parametrize("field", ["Windowed", "Unlimited", "0", "type2"])
def test_a_field_with_any_name_and_value_is_ignored_or_makes_the_object_unreadable(field: str, value: object) -> None:
    made = of()
    made["spec"]["recovery"]["budget"][field] = value
    made["status"][field] = value
    with contextlib.suppress(ValueError):
        assert read_stored(made).ignored


def test_a_time_of_any_size_makes_an_object_unreadable_at_most() -> None:
    with pytest.raises(ValueError, match="a time lies between"):
        read_stored(of(phaseTime=10**400))
