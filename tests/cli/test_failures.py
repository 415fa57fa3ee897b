"""The table of defaults: complete, true of the policy, proven by tests that exist, and the same in the docs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gangctl.api.policy import OnReason
from gangctl.api.reasons import Reason
from gangctl.cli.failures import Failure, default_answer, documented_failures
from gangctl.cli.main import main
from gangctl.core.facts.evidence import DEFAULTS, DISRUPTION_REASONS
from tests.pages.faults import faults_page

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = documented_failures()
FACTS: Final = {"seen": "it", "means": "it", "group": "it", "source": "it", "tests": ["it"]}
NO_FAULT: Final = {"Unschedulable", "BarrierTimeout"}
"""Deadlines: they replace pods or end the gang without a fault."""


def _functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def _exists(test: str) -> bool:
    file, _, function = test.partition("::")
    path = ROOT / file
    return path.is_file() and (not function or function in _functions(path))


def _causes_in_the_source() -> set[str]:
    """The reasons that stand below the heading of causes in ``reasons.py``."""
    text = (ROOT / "gangctl/api/reasons.py").read_text(encoding="utf-8")
    part = text.split("# Causes of incidents")[1].split("# How a gang goes on.")[0]
    return {reason.value for reason in Reason if f"    {reason.name} = " in part}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_test_that_a_row_names_exists(row: Failure) -> None:
    assert [test for test in row.tests if not _exists(test)] == []


def test_a_test_that_does_not_exist_is_noticed() -> None:
    assert not _exists("tests/cli/test_failures.py::test_that_is_not_there")
    assert not _exists("tests/core/scenarios/not-there.txt")


def test_every_cause_has_a_default_and_a_row() -> None:
    causes = _causes_in_the_source()
    assert {reason.value for reason in OnReason} <= causes
    assert set(DEFAULTS) == causes - NO_FAULT
    seen = {str(row.evidence.fault().reason) for row in ROWS if row.evidence is not None}
    assert seen == set(DEFAULTS)
    assert {name for name in NO_FAULT if any(name in row.more for row in ROWS if row.evidence is None)} == NO_FAULT


def test_every_reason_of_a_disruption_that_kubernetes_gives_has_a_row() -> None:
    named = {row.evidence.condition for row in ROWS if row.evidence is not None}
    assert named >= {f"DisruptionTarget:{reason}" for reason in DISRUPTION_REASONS}


def test_names_are_unique_and_groups_are_not_torn_apart() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    groups = [row.group for row in ROWS]
    assert [one for at, one in enumerate(groups) if one in groups[:at] and groups[at - 1] != one] == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.rule is not None], ids=lambda row: row.name)
def test_the_rule_of_a_row_changes_the_answer(row: Failure) -> None:
    assert row.evidence is not None
    assert row.rule is not None
    fault, log = row.evidence.fault(), row.evidence.log
    without, with_rule = default_answer(fault, log=log), default_answer(fault, {"name": "it", **row.rule}, log=log)
    assert with_rule[0].rule == "it"
    assert (with_rule[0].action, with_rule[1]) != (without[0].action, without[1])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({**FACTS, "name": "x", "evidence": {}}, "one kind of evidence"),
        ({**FACTS, "name": "x", "evidence": {"exitCode": 1, "signal": "SIGKILL"}}, "one kind of evidence"),
        ({**FACTS, "name": "x", "evidence": {"reason": "Hang", "log": "line"}}, "beside an end"),
        ({**FACTS, "name": "x", "evidence": {"log": "line"}}, "one kind of evidence"),
        ({**FACTS, "name": "x", "evidence": {"exitCode": 0}}, "greater than or equal to 1"),
        ({**FACTS, "name": "x", "evidence": {"reason": "Bored"}}, "reason"),
        ({**FACTS, "name": "x", "evidence": {"exitcode": 1}}, "exitcode"),
        ({**FACTS, "name": "x", "tests": []}, "tests"),
        ({**FACTS, "name": "x", "source": ""}, "source"),
    ],
)
def test_a_row_that_can_not_be_read_is_refused(row: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Failure.model_validate(row)


def test_the_defaults_are_printed_without_a_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--explain-defaults"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{reason} " in f"\n{out}" for reason in DEFAULTS)
    assert all(f"{row.name}: " in out and row.source in out for row in ROWS)


def test_json_and_yaml_have_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--explain-defaults", "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert main(["classify", "--explain-defaults", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert {one["reason"]: one["charged"] for one in as_json["reasons"]}["Preempted"] is False
    watchdog = next(one for one in as_json["failures"] if one["name"] == "nccl-watchdog-timeout")
    assert watchdog["answer"] == "Signal, charged, level Process"
    assert watchdog["evidence"] == {"signal": "SIGABRT"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--exit-code", "1"], "name a FILE, or use --explain-defaults"),
        (["job.yaml", "--explain-defaults"], "takes no FILE, --member or --log"),
        (["--member", "worker-0", "--explain-defaults"], "takes no FILE, --member or --log"),
    ],
)
def test_a_manifest_is_named_unless_defaults_are_asked_for(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["classify", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_page_in_docs_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/faults.md").read_text(encoding="utf-8") == faults_page(), "make generate"
