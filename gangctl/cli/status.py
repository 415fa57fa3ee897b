"""``gangctl status``: gangs as `kubectl get gj` shows them; with a name, why it is as it is and what to do."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from gangctl.cli import rendering
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.live import Look
from gangctl.cli.output import as_json, as_yaml, console, is_terminal, say, tell
from gangctl.cli.targets import choosing
from gangctl.cli.targets.port import Place
from gangctl.cli.text import clean

_EPILOG: Final = """\
examples:
  gangctl status                    all gangs of the namespace, or of this machine's state directory
  gangctl status -A                 all gangs of the cluster
  gangctl status demo               why it restarted, what was thrown away, what to do next
  gangctl status demo --watch       the same, kept up to date until Ctrl-C
  gangctl status demo -o json       the stored object, for programs (status as in the API)
  gangctl trace demo                what each second of its last incident was spent on

On this machine, without a running controller, the table shows what was stored last. On a cluster it needs the rights
get and list on gangjobs, for one gang list on pods, and watch on them with --watch.

exit codes: 0 shown, 2 bad input, or the cluster doesn't answer
"""
_MOST_MEMBERS: Final = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of a gang; without it all are listed")
    parser.add_argument("-o", "--output", choices=["json", "yaml", "wide"], help="whole objects, or more columns")
    parser.add_argument("-w", "--watch", action="store_true", help="keep it up to date until Ctrl-C")
    choosing.configure(parser, everywhere=True)


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    if arguments.name and arguments.all_namespaces:
        raise UserError("a name is looked for in one namespace: take -n NAMESPACE instead of -A")
    if arguments.watch and arguments.output in {"json", "yaml"}:
        raise UserError(f"--watch shows a table: leave -o {arguments.output} out, or ask again and again")
    if arguments.watch and not is_terminal(sys.stdout):
        raise UserError("--watch needs a terminal; in a pipe, gangctl run --plain prints a line for each change")
    with choosing.place(arguments) as place:
        if arguments.output in {"json", "yaml"}:
            _print_objects(place, arguments)
        elif arguments.watch:
            _watch(place, arguments)
        else:
            _print(place, arguments)
    return ExitCode.OK


def _print(place: Place, arguments: argparse.Namespace) -> None:
    looks = place.looks(arguments.name)
    if not looks:
        say(clean(f"there are no gangs in {place.where}: {place.beginning}"))
        return
    if not arguments.name:
        tell(f"gangs in {place.where}")
    out = console(sys.stdout)
    with out.capture() as captured:
        out.print(_shown(place, arguments, looks))
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))  # tables fill their last column


def _watch(place: Place, arguments: argparse.Namespace) -> None:
    try:
        with Live(console=console(sys.stdout), auto_refresh=False) as live:

            def show(looks: Sequence[Look]) -> None:
                if looks:
                    live.update(_shown(place, arguments, looks), refresh=True)
                else:
                    what = f"gang {clean(arguments.name)} is gone from" if arguments.name else "there are no gangs in"
                    live.update(Text(f"{what} {clean(place.where)}"), refresh=True)

            place.watch(arguments.name, show)
    except KeyboardInterrupt:
        return


def _print_objects(place: Place, arguments: argparse.Namespace) -> None:
    found = place.documents(arguments.name)
    value = found[0] if arguments.name else {"apiVersion": "v1", "kind": "List", "items": found}
    say(as_json(value) if arguments.output == "json" else as_yaml(value))


def _shown(place: Place, arguments: argparse.Namespace, looks: Sequence[Look]) -> RenderableType:
    now = time.time()
    if arguments.name:
        return _details(place, looks[0], now)
    wide, everywhere = arguments.output == "wide", arguments.all_namespaces
    rows = [rendering.summary(one, now, wide=wide) for one in looks]
    columns = rendering.WIDE_COLUMNS if wide else rendering.COLUMNS
    if everywhere:
        rows = [[clean(one.job.metadata.namespace), *row] for one, row in zip(looks, rows, strict=True)]
        columns = ("NAMESPACE", *columns)
    return rendering.table(columns, rows)


def _details(place: Place, found: Look, now: float) -> RenderableType:
    status = found.snapshot.status
    parts: list[RenderableType] = [rendering.head(found, now)]
    if status.message:
        parts.append(Text(f"because: {clean(status.message)}"))
    next_step = rendering.advice(found.job)
    if next_step:
        parts.append(Text(f"next: {clean(next_step)}", style="bold"))
    if not found.live:
        parts.append(Text("no controller answers: this is what was stored last", style="yellow"))
    parts += [Text(line) for line in _facts(place, found)]
    parts += [Text(), rendering.members(found.snapshot.members, _MOST_MEMBERS, live=found.live, nodes=found.nodes)]
    if status.incidents:
        parts += [Text(), Text("Incidents, newest first (phases in seconds)", style="bold")]
        parts += [rendering.incidents(status.incidents), Text(rendering.trace_hint(found.job), style="dim")]
    conditions = [one for one in status.conditions if one.status != "False"]
    if conditions:
        rows = [(clean(one.type), one.status, clean(one.reason), clean(one.message)) for one in conditions]
        parts += [Text(), rendering.table(("CONDITION", "STATUS", "REASON", "BECAUSE"), rows, fold="BECAUSE")]
    return Group(*parts)


def _facts(place: Place, found: Look) -> list[str]:
    status = found.snapshot.status
    point = status.restore_point
    facts: list[str] = [f"in: {clean(place.where)}"]
    if point is not None:
        at = f" ({clean(point.path)})" if point.path else ""
        facts.append(f"restore point: step {point.step} of tier {clean(point.tier)}{at}")
    elif found.job.spec.checkpoint is not None:
        facts.append("restore point: none yet, an attempt starts from the beginning")
    facts += [
        f"master of {clean(master.process_group)}: {clean(master.address)}:{master.port}" for master in status.masters
    ]
    facts.append(f"logs: {clean(place.logs_of(found.job.metadata.name))}")
    return facts
