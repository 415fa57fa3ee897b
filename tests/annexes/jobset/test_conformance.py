"""The verdicts on JobSet's own tests: each begins as it may, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[3]
VERDICTS = yaml.safe_load((REPOSITORY / "e2e/jobsets/verdicts.yaml").read_text())
TEST = re.compile(r"([\w/]+\.py)::(\w+)")


def test_each_verdict_that_says_passed_or_names_a_test_names_one_that_exists() -> None:
    for verdict in (one for suite in VERDICTS.values() for one in suite):
        named = TEST.findall(verdict)
        assert named or verdict.startswith(("differs: ", "does not apply: ")), verdict
        for file, test in named:
            assert f"def {test}(" in (REPOSITORY / file).read_text(), verdict


def test_each_case_of_a_suite_has_one_verdict() -> None:
    for suite in VERDICTS.values():
        cases = [case for named in suite.values() for case in named]
        assert len(set(cases)) == len(cases)
