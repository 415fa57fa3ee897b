"""``gangctl nodes``: the faults that gangs met on each node, the worst first."""

import argparse
import sys
import time
from functools import partial
from typing import Any, Final

from rich.text import Text

from gangctl.annexes.node_records import reader
from gangctl.annexes.node_records.records import AVOIDED, HOUR, NodeRecord, Records, Weights, pruned
from gangctl.api.model import rfc3339
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import console, print_document, print_out, trim_lines
from gangctl.cli.printers.tables import FittingTable
from gangctl.cli.printers.text import clean, first, format_duration, value_or_dash
from gangctl.cli.targets import selection
from gangctl.words.text import counted

_EPILOG: Final = """\
examples:
  gangctl nodes                  nodes with faults, the worst first
  gangctl nodes node-7           one node: faults by kind, devices, namespaces and gangs
  gangctl nodes -o json          all nodes, for programs
  gangctl nodes node-7 --clear   the node was repaired: its faults no longer count

A fault counts if gangctl put it down to the node or its device, once a day for each gang. It loses half its weight in a
week. A namespace counts at most 0.8 for other namespaces; at 2.4, new pods prefer other nodes. Checks add nothing to
a score; one that passes an hour after the last fault clears its namespace's faults.

The controller stores the records within seconds of a fault and every ten minutes, and reads what --clear has changed
with the next write. Permissions in the controller's namespace: get the ConfigMap NAME-node-records; with --clear, also
update it.

exit codes: 0, 2 bad input, no records, or not permitted
"""
_MOST_GANGS: Final = 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("node", metavar="NODE", nargs="?", default="", help="one node (default: all)")
    parser.add_argument("--clear", action="store_true", help="take the faults off the node's record: it was repaired")
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="print for programs")
    selection.configure_controller(parser, "Lease of the controller whose records these are")
    selection.configure_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the records, or clear one."""
    if arguments.clear and not arguments.node:
        raise UserError("--clear is for one node: name it")
    with selection.open_cluster(arguments) as target:
        if arguments.clear:
            target.ask(partial(reader.clear, controller=arguments.controller, node=arguments.node))
            print_out(clean(f"{arguments.node}: its faults no longer count, from the controller's next write on"))
            return ExitCode.OK
        found = target.ask(partial(reader.read_records, controller=arguments.controller))
    now = time.time()
    found = pruned(found, now)
    if arguments.node:
        found = {arguments.node: reader.named(found, arguments.node)}
    if arguments.output:
        nodes = [node_document(name, found[name], now) for name in _sorted(found, now)]
        print_document({"kind": "NodeRecords", "nodes": nodes}, arguments.output)
    elif arguments.node:
        print_node(arguments.node, found[arguments.node], now)
    else:
        _print_nodes(found, now)
    return ExitCode.OK


def _sorted(found: Records, now: float) -> list[str]:
    return sorted(found, key=lambda name: (-found[name].score(now), -sum(found[name].kinds.values()), name))


def _print_nodes(found: Records, now: float) -> None:
    bad = [name for name in _sorted(found, now) if found[name].namespaces]
    rows = tuple(
        (clean(name), f"{one.score(now):.1f}", _avoided_by(one, now), _weights(one.kinds), *_hit(one, now))
        for name, one in ((name, found[name]) for name in bad)
    )
    columns = ("NODE", "SCORE", "AVOIDED BY", "FAULTS", "GANGS", "LAST FAULT")
    out = console(sys.stdout)
    with trim_lines(out):
        if rows:
            out.print(FittingTable(columns, rows, fold="FAULTS", expendable=("GANGS", "LAST FAULT")))
        out.print(Text(f"{counted(len(found) - len(bad), 'node')} without a fault"))


def print_node(name: str, one: NodeRecord, now: float) -> None:
    gangs, last = _hit(one, now)
    lines = {
        "node": clean(name),
        "score": f"{one.score(now):.1f}",
        "avoided by": _avoided_by(one, now),
        "faults": _weights(one.kinds),
        "devices": _weights(one.devices),
        "namespaces": _weights(one.namespaces),
        "gangs": gangs,
        "last fault": last,
        "checks": _weights(one.checks),
        "observed": f"{_observed_hours(one):.1f} h of the last two days",
    }
    for label, text in lines.items():
        print_out(f"{label:<12}{text}")


def _avoided_by(one: NodeRecord, now: float) -> str:
    if one.score(now) >= AVOIDED:
        return "all gangs"
    return first([clean(name) for name in one.avoided_by(now)], _MOST_GANGS) or "-"


def _hit(one: NodeRecord, now: float) -> tuple[str, str]:
    names = [clean(name) for name in sorted(one.gangs, key=lambda name: (-one.gangs[name], name))]
    last = f"{format_duration(now - one.last_fault)} ago" if one.last_fault else ""
    return value_or_dash(first(names, _MOST_GANGS)), value_or_dash(last)


def _weights(weights: Weights) -> str:
    """Weights in words: ``DeviceLost 1.7, Stuck 0.9``."""
    return ", ".join(f"{clean(name)} {weight:.1f}" for name, weight in weights.items()) or "-"


def _observed_hours(one: NodeRecord) -> float:
    return sum(its.seconds for its in one.hours.values()) / HOUR


def node_document(name: str, one: NodeRecord, now: float) -> dict[str, Any]:
    """The record of a node for programs."""
    return {
        "name": name,
        "score": round(one.score(now), 3),
        "avoided": one.score(now) >= AVOIDED,
        "avoidedByNamespaces": one.avoided_by(now),
        "faults": _rounded(one.kinds),
        "devices": _rounded(one.devices),
        "namespaces": _rounded(one.namespaces),
        "checks": _rounded(one.checks),
        "gangs": sorted(one.gangs),
        **({"lastFaultTime": rfc3339(one.last_fault)} if one.last_fault else {}),
        "observedHours": round(_observed_hours(one), 2),
        "hoursWithFaults": sum(its.fault for its in one.hours.values()),
        "hoursWithRestarts": sum(its.restart for its in one.hours.values()),
    }


def _rounded(weights: Weights) -> dict[str, float]:
    return {name: round(weight, 3) for name, weight in weights.items()}
