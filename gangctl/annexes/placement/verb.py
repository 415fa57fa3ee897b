"""``gangctl placement``: stranded devices, gangs by failure domain, and what other placements would have cost."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from typing import Final

from rich.text import Text

from gangctl.annexes.placement.reader import survey
from gangctl.annexes.placement.survey import Alternative, History, Report
from gangctl.cli.errors import ExitCode
from gangctl.cli.printers.output import console, print_document, trim_lines
from gangctl.cli.printers.tables import FittingTable
from gangctl.cli.printers.text import clean
from gangctl.cli.targets import selection
from gangctl.story.document import document
from gangctl.words.text import counted, moment

_HOSTNAME: Final = "kubernetes.io/hostname"
_EPILOG: Final = """\
examples:
  gangctl placement                                          nodes are the failure domains
  gangctl placement --domain topology.kubernetes.io/zone     zones are
  gangctl placement -o json                                  for programs

STRANDED counts devices that are free on nodes which take the pods, in parts smaller than the largest pod that asks for
them (POD); ELSEWHERE, those that are free on other nodes; WAITING, pods without a node for which enough is free in
total. Each profile of MIG is a resource.

AS IT WAS has the faults that gangctl put down to nodes and devices, as far back as the gangs' statuses reach: ten
incidents each. AS PACK and AS SPREAD place the gangs of now anew on the same nodes and have the same faults again.
SEVERAL counts stops that took several pods of a gang at once, OUTAGES faults that stopped all gangs of a group
(spec.replicaGroup) that has several. LEFT counts pods that would have no room.

Permissions on a cluster: list nodes, and pods and gangjobs in all namespaces.

exit codes: 0, 2 bad input, or not permitted
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "--domain",
        metavar="LABEL",
        default=_HOSTNAME,
        help="label of nodes that names their failure domain (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print for programs")
    selection.configure_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    with selection.open_cluster(arguments) as target:
        found = target.ask(partial(survey, key=arguments.domain))
    if arguments.output:
        print_document({"kind": "Placement", **document(found)}, arguments.output)
    else:
        _print(found)
    return ExitCode.OK


def _print(found: Report) -> None:
    out = console(sys.stdout)
    with trim_lines(out):
        for table in _tables(found):
            if table.rows:
                out.print(table, Text())
        out.print(Text(_said(found.history)), soft_wrap=True)


def _tables(found: Report) -> Sequence[FittingTable]:
    resources, domains, gangs = ([*map(astuple, rows)] for rows in (found.resources, found.domains, found.gangs))
    return (
        _table(("RESOURCE", "NODES", "TOTAL", "FREE", "ELSEWHERE", "POD", "STRANDED", "WAITING"), resources),
        _table(("DOMAIN", "NODES", "GANGS", "PODS", "DEVICES"), domains),
        _table(("GANG", "STRATEGY", "PODS", "NODES", "DOMAINS", "MOST IN ONE"), gangs),
        _table(
            ("PLACED", "STOPS", "PODS LOST", "SEVERAL", "OUTAGES", "DEVICE HOURS", "STRANDED", "LEFT"),
            [_alternative(one) for one in found.alternatives] if found.gangs else [],
        ),
    )


def _table(columns: tuple[str, ...], rows: Sequence[Sequence[object]]) -> FittingTable:
    return FittingTable(columns, tuple(tuple(clean(str(cell)) for cell in row) for row in rows))


def _alternative(one: Alternative) -> tuple[object, ...]:
    cost, hours = one.cost, f"{one.cost.device_seconds / 3600:.2f}"
    return one.placed, cost.stops, cost.pods, cost.several, cost.outages, hours, one.stranded, one.pods_left


def _said(history: History) -> str:
    if history.since is None:
        return "no gang has had an incident"
    return (
        f"since {moment(history.since)}: {counted(history.faults, 'fault')} of nodes and devices, {history.several} of "
        f"several members of a gang at once; gangs waited {history.replace_seconds:.0f} s for new pods in "
        f"{counted(history.replacements, 'incident')}"
    )
