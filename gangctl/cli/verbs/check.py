"""``gangctl check``: what a manifest will do, without running it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from gangctl.api.manifest import ManifestError, load
from gangctl.api.problems import Problem
from gangctl.cli.checking import text
from gangctl.cli.checking.checked import Checked, checked
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.manifests import configure_overrides, manifest_text, shown_name
from gangctl.cli.printers.output import as_json, print_out
from gangctl.cli.printers.text import clean

_EPILOG: Final = """\
examples:
  gangctl check job.yaml
  gangctl check job.yaml --set spec.roles[0].replicas=8
  gangctl check job.yaml --member worker-3      the variables of another member
  gangctl check job.yaml -o json | jq '.members[0].processes[0].environment'

Nothing is started or written. Directories of checkpoints are looked up from the current folder, as gangctl run does.

exit codes: 0 valid, 1 valid but gangctl run can't run it on this machine, 2 invalid
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Show what a manifest will do: members and ranks, the variables of each process, ports, the restore point that is found
in this folder, what happens after faults, and what gangctl run ignores on this machine. All that is wrong with it is
shown at once, with its line and field."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="manifest of a GangJob; - reads stdin")
    configure_overrides(parser)
    parser.add_argument(
        "--member", metavar="M", help="show the variables of this member (default: the first of each role)"
    )
    parser.add_argument("-o", "--output", choices=["json"], help="print one JSON object, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print what the manifest will do."""
    name = arguments.file
    content = manifest_text(name)
    try:
        job = load(content, shown_name(name), arguments.overrides)
    except ManifestError as error:
        if arguments.output != "json":
            raise UserError(str(error)) from None
        print_out(as_json({"valid": False, "problems": [_problem(one) for one in error.problems]}))
        return ExitCode.BAD_INPUT
    found = checked(job, Path.cwd())
    _check_member(found, arguments.member)
    if arguments.output == "json":
        print_out(as_json(found.document()))
    else:
        for line in text.lines(found, arguments.member, shown_name(name)):
            print_out(clean(line))
    return ExitCode.FAILED if found.refused else ExitCode.OK


def _check_member(found: Checked, wanted: str | None) -> None:
    names = [one.name for one in found.members]
    if wanted is not None and wanted not in names:
        raise UserError(f"--member: there is no member {wanted!r}; there are {names[0]} to {names[-1]}")


def _problem(one: Problem) -> dict[str, Any]:
    fields = {"path": one.path, "line": one.line, "found": one.found, "expected": one.expected, "why": one.why}
    return {name: value for name, value in fields.items() if value not in {None, ""}}
