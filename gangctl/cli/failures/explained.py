"""The defaults explained: for a terminal, for programs, and as ``docs/reference/faults.md``.

``python -m gangctl.cli.failures.explained`` prints the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from gangctl.api.gangjob_reference import meanings
from gangctl.api.policy import Action
from gangctl.api.reasons import Reason
from gangctl.cli.failures.table import Failure, answer, failures
from gangctl.core.facts.evidence import DEFAULTS

_INTRODUCTION: Final = """\
<!-- Made by `python -m gangctl.cli.failures.explained` from gangctl/core/facts/evidence.py and
gangctl/cli/failures/failures.yaml. Change those. -->

# Faults

What gangctl does about a fault that no rule of `podFailurePolicy` matches. `gangctl classify --explain-defaults` prints
the same, with `-o json` or `-o yaml` for programs. `gangctl classify FILE --exit-code N` applies a manifest's rules.

## By reason

The cause of an incident is its strongest evidence, and among equals the earliest: device, node, disruption of a pod,
end of a container, end of a process, request. A charged restart consumes `recovery.budget`. The level is the least that
is replaced; a rule or a recurring fault can raise it.

"""
_FAILURES: Final = """\

## By what is seen

Each row is a documented failure with its source. *Answer* is the controller's policy for the evidence alone; gangctl
reads messages in the output only for rules with `onLog`. The rule is an example of how to change the answer. *Proof* is
a scenario in `tests/core/scenarios/`, or a test.
"""
_NO_FAULT: Final = "no fault reaches the policy"


def document() -> dict[str, Any]:
    """The whole table, for programs.

    Returns:
        ``{"reasons": [...], "failures": [...]}``, with the keys of the YAML file and of ``Default``, and ``answer``.
    """
    said = meanings(Reason)
    reasons = [
        {
            "reason": str(reason),
            "meaning": said[reason],
            "evidence": row.strength.name.capitalize(),
            "charged": row.charged,
            "level": str(row.level),
            "againstNode": row.against_node,
        }
        for reason, row in DEFAULTS.items()
    ]
    return {"reasons": reasons, "failures": [_as_object(one) for one in failures()]}


def text() -> Iterator[str]:
    """The table as lines for a terminal."""
    yield f"{'REASON':<22}{'EVIDENCE':<12}{'CHARGED':<9}{'LEVEL':<11}NODE SUSPECTED"
    for reason, row in DEFAULTS.items():
        charged, suspected = ("yes" if one else "no" for one in (row.charged, row.against_node))
        yield f"{reason:<22}{row.strength.name.capitalize():<12}{charged:<9}{row.level:<11}{suspected}"
    for group, rows in groupby(failures(), lambda one: one.group):
        yield from ("", group.upper())
        for one in rows:
            yield from ("", f"{one.name}: {one.seen}", f"  means   {one.means}", f"  answer  {_answer(one)}")
            if one.more:
                yield f"          {one.more}"
            if one.rule is not None:
                yield f"  rule    {_rule(one.rule)}"
            yield f"  source  {one.source}"


def page() -> str:
    """The text of ``docs/reference/faults.md``."""
    said = meanings(Reason)
    lines = [
        "| reason | meaning | evidence | charged | level | node suspected |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for reason, row in DEFAULTS.items():
        charged, suspected = ("yes" if one else "no" for one in (row.charged, row.against_node))
        evidence = row.strength.name.capitalize()
        lines.append(f"| `{reason}` | {said[reason]} | {evidence} | {charged} | {row.level} | {suspected} |")
    parts = [_INTRODUCTION + "\n".join(lines) + "\n", _FAILURES]
    for group, rows in groupby(failures(), lambda one: one.group):
        parts.append(f"\n### {group}\n\n| seen | means | answer | rule that changes it | source | proof |\n")
        parts.append("| --- | --- | --- | --- | --- | --- |\n")
        parts += [_row(one) for one in rows]
    return "".join(parts)


def _row(one: Failure) -> str:
    rule = "" if one.rule is None else f"`{_rule(one.rule)}`"
    proof = ", ".join(f"`{test.removeprefix('tests/core/scenarios/').removesuffix('.txt')}`" for test in one.tests)
    does = f"{_answer(one)}. {one.more}".strip()
    return f"| {one.seen} | {one.means} | {does} | {rule} | {one.source} | {proof} |\n"


def _answer(one: Failure) -> str:
    if one.evidence is None:
        return _NO_FAULT
    fault = one.evidence.fault()
    said, level = answer(fault)
    return f"{fault.reason}, {'charged' if said.action is Action.COUNT else 'not charged'}, level {level}"


def _rule(rule: dict[str, Any]) -> str:
    """The rule in one line of YAML, which JSON without its quotes is here."""
    return json.dumps(rule).replace('"', "")


def _as_object(one: Failure) -> dict[str, Any]:
    found = one.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {**found, "answer": _answer(one)}


if __name__ == "__main__":
    sys.stdout.write(page())
