"""The reference of faults, as Markdown, made from the defaults of the policy and the table of failures.

``python -m tests.pages.faults`` prints it.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Final

from gangctl.api.model import meanings
from gangctl.api.reasons import Reason
from gangctl.cli.failures import NO_FAULT, Failure, default_answer, documented_failures, rule_line
from gangctl.core.facts.evidence import DEFAULTS, default

_INTRODUCTION: Final = """\
<!-- Made by `python -m tests.pages.faults` from gangctl/core/facts/evidence.py and
gangctl/cli/failures.yaml. Change those. -->

# Faults

What gangctl does about a fault that no rule of `podFailurePolicy` matches. `gangctl classify --explain-defaults` prints
it too, also with `-o json` or `-o yaml`. `gangctl classify FILE --exit-code N` applies a manifest's rules.

## By reason

The cause of an incident is its strongest evidence, and among equals the earliest: device, node, disruption of a pod,
end of a container, end of a process, request. A charged restart consumes `recovery.budget`. A rule or a recurring fault
can raise the level.

"""
_SOURCE: Final = "https://github.com/gangctl/gangctl/blob/main/gangctl/cli/failures.yaml"
_FAILURES: Final = f"""\

## By what is seen

*Answer* names the reason; charge and level are in its row above, unless a level follows. Messages in the output
count only for rules with `onLog`. The rule is an example of how to change the answer. [failures.yaml]({_SOURCE}) has
the source and the tests of each row.
"""


def faults_page() -> str:
    """The text of ``docs/reference/faults.md``."""
    meaning = meanings(Reason)
    lines = [
        "| reason | meaning | evidence | charged | level |",
        "| --- | --- | --- | --- | --- |",
    ]
    for reason, row in DEFAULTS.items():
        charged, evidence = "yes" if row.charged else "no", row.strength.name.capitalize()
        level = f"{row.level}, node suspected" if row.against_node else row.level
        lines.append(f"| `{reason}` | {meaning[reason]} | {evidence} | {charged} | {level} |")
    parts = [_INTRODUCTION + "\n".join(lines) + "\n", _FAILURES]
    for group, rows in groupby(documented_failures(), lambda one: one.group):
        parts.append(f"\n### {group}\n\n| seen | means | answer | rule that changes it |\n| --- | --- | --- | --- |\n")
        parts += [_row(one) for one in rows]
    return "".join(parts)


def _row(one: Failure) -> str:
    rule = "" if one.rule is None else f"`{rule_line(one.rule)}`"
    does = f"{_brief_answer(one)}. {one.more}" if one.more else _brief_answer(one)
    return f"| {one.seen} | {one.means} | {does} | {rule} |\n"


def _brief_answer(one: Failure) -> str:
    """The reason, and the level where it isn't that of the reason's row; the charge is always that of the row."""
    if one.evidence is None:
        return NO_FAULT
    fault = one.evidence.fault()
    _, level = default_answer(fault)
    return f"`{fault.reason}`" if level == default(fault.reason).level else f"`{fault.reason}`, level {level}"


if __name__ == "__main__":
    sys.stdout.write(faults_page())
