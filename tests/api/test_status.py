"""A status can always be written, and is read back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangctl.api.incident import Cause
from gangctl.api.model import rfc3339
from gangctl.api.status import Condition, RestorePoint, Status


@given(st.text(alphabet=st.characters(codec=None), max_size=3000))
def test_any_text_can_be_put_into_a_status(text: str) -> None:
    cause = Cause(reason=text, member=text, node=text, message=text, time=0.0)
    assert len(cause.message) <= 1024
    assert Cause.model_validate_json(cause.model_dump_json(by_alias=True)) == cause
    RestorePoint(step=1, tier="a", path=text).path.encode(errors="strict")


def test_a_cut_text_ends_with_an_ellipsis() -> None:
    assert Status(message="x" * 2000).message.endswith("x…")


def test_times_are_rfc_3339_in_json_and_seconds_in_python() -> None:
    condition = Condition(type="Ready", status="True", reason="Running", last_transition_time=1_700_000_000.25)
    text = condition.model_dump_json(by_alias=True)
    assert '"lastTransitionTime":"2023-11-14T22:13:20.250000Z"' in text
    assert Condition.model_validate_json(text) == condition


@pytest.mark.parametrize(
    "time", ["2026-01-31T12:00:00", "yesterday", True, None, [], "9999-12-31T23:59:59-12:00", 1e30, float("nan")]
)
def test_an_invalid_time_is_rejected(time: object) -> None:
    with pytest.raises(ValidationError):
        Condition.model_validate({"type": "a", "status": "True", "reason": "a", "lastTransitionTime": time})


def test_an_offset_is_understood() -> None:
    made = {"type": "a", "status": "True", "reason": "a", "lastTransitionTime": "2026-01-31T12:00:00+02:00"}
    assert rfc3339(Condition.model_validate(made).last_transition_time) == "2026-01-31T10:00:00.000000Z"
