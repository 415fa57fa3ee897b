"""The reference in docs is that of the types."""

from __future__ import annotations

import re
from pathlib import Path

from gangctl.api.model import meanings
from gangctl.api.policy import OnReason
from gangctl.api.reasons import Reason
from gangctl.api.status import ConditionType, GangPhase
from tests.api.apiserver import nodes, schema
from tests.pages.gangjob import KEPT, reference

FILE = Path(__file__).parents[2] / "docs" / "reference" / "gangjob.md"


def test_the_file_in_docs_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == reference(), "make generate"


def test_every_field_has_a_row_but_those_within_what_the_controller_alone_needs() -> None:
    for path, node in nodes(schema()):
        if path.startswith("spec") or (path.startswith("status") and not KEPT & set(re.split(r"[.\[]", path))):
            for name in node.get("properties", {}):
                assert f"| `{name}`" in reference(), f"{path}.{name}"


def test_every_reason_condition_and_phase_has_a_sentence() -> None:
    for kind in (Reason, ConditionType, GangPhase):
        told = meanings(kind)
        assert set(told) == {one.value for one in kind}
        assert all(sentence.endswith(".") for sentence in told.values())


def test_reasons_are_camel_case() -> None:
    assert all(re.fullmatch(r"([A-Z]+[a-z]+)+", reason) for reason in Reason)


def test_every_value_of_on_reasons_is_a_reason() -> None:
    assert {one.value for one in OnReason} <= {one.value for one in Reason}


def test_every_reason_is_on_the_page_of_faults_or_of_events() -> None:
    pages = [(FILE.parent / name).read_text(encoding="utf-8") for name in ("faults.md", "events.md")]
    assert [one for one in Reason if one is not Reason.HELD and not any(f"| `{one}` |" in page for page in pages)] == []
