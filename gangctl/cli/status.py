"""``gangctl status``: gangs as `kubectl get gj` shows them; with a name, why it is as it is and what to do."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gangctl.cli import gangs, rendering
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.live import Look, look
from gangctl.cli.output import as_json, console, is_terminal, say
from gangctl.cli.text import clean
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.layout import StateDirectory

_EPILOG: Final = """\
examples:
  gangctl status                    all gangs of this machine's state directory
  gangctl status demo               why it restarted, what was thrown away, what to do next
  gangctl status demo --watch       the same, kept up to date until Ctrl-C
  gangctl status demo -o json       the stored object, for programs (status as in the API)

Without a running controller the table shows what was stored last.

exit codes: 0 shown, 2 bad input
"""
_MOST_MEMBERS: Final = 64
_REFRESH_SECONDS: Final = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of a gang; without it all are listed")
    parser.add_argument("-o", "--output", choices=["json", "yaml", "wide"], help="whole objects, or more columns")
    parser.add_argument("-w", "--watch", action="store_true", help="keep it up to date until Ctrl-C")
    gangs.add_state_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    state = gangs.state_directory(arguments)
    if arguments.output in {"json", "yaml"}:
        if arguments.watch:
            raise UserError(f"--watch shows a table: leave -o {arguments.output} out, or ask again and again")
        _print_objects(state, arguments)
        return ExitCode.OK
    out = console(sys.stdout)
    if arguments.watch:
        _watch(state, arguments, out)
    else:
        shown = _shown(state, arguments)
        if shown is None:
            say(f"there are no gangs in {state.path}; start one with gangctl run FILE")
        else:
            _print(out, shown)
    return ExitCode.OK


def _print(out: Console, shown: RenderableType) -> None:
    with out.capture() as captured:
        out.print(shown)
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))  # tables fill their last column


def _watch(state: StateDirectory, arguments: argparse.Namespace, out: Console) -> None:
    if not is_terminal(sys.stdout):
        raise UserError("--watch needs a terminal; in a pipe, gangctl run --plain prints a line for each change")
    try:
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(_shown(state, arguments) or Text(f"there are no gangs in {state.path}"), refresh=True)
                time.sleep(_REFRESH_SECONDS)  # the rate of a picture, nothing waits for it
    except KeyboardInterrupt:
        return


def _print_objects(state: StateDirectory, arguments: argparse.Namespace) -> None:
    names = [arguments.name] if arguments.name else gangs.names(state)
    found = [_document(state, name) for name in names]
    value = found[0] if arguments.name else {"apiVersion": "v1", "kind": "List", "items": found}
    if arguments.output == "json":
        say(as_json(value))
    else:
        say(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip())


def _document(state: StateDirectory, name: str) -> dict[str, Any]:
    job = gangs.read(gangs.find(state, name))
    return job.model_dump(mode="json", by_alias=True, exclude_none=True)


def _shown(state: StateDirectory, arguments: argparse.Namespace) -> RenderableType | None:
    now = time.time()
    if arguments.name:
        return _details(state, _look(state, arguments.name, now), now)
    names = gangs.names(state)
    if not names:
        return None
    wide = arguments.output == "wide"
    rows = [rendering.summary(_look(state, name, now), now, wide=wide) for name in names]
    return rendering.table(rendering.WIDE_COLUMNS if wide else rendering.COLUMNS, rows)


def _look(state: StateDirectory, name: str, now: float) -> Look:
    store = gangs.find(state, name)
    try:
        return look(state, store, now)
    except ClusterError as error:
        raise UserError(str(error)) from None


def _details(state: StateDirectory, found: Look, now: float) -> RenderableType:
    status = found.snapshot.status
    parts: list[RenderableType] = [rendering.head(found, now)]
    if status.message:
        parts.append(Text(f"because: {clean(status.message)}"))
    next_step = rendering.advice(found.job)
    if next_step:
        parts.append(Text(f"next: {clean(next_step)}", style="bold"))
    if not found.live:
        parts.append(Text("no controller answers: this is what was stored last", style="yellow"))
    parts += [Text(line) for line in _facts(state, found)]
    parts += [Text(), rendering.members(found.snapshot.members, _MOST_MEMBERS, live=found.live)]
    if status.incidents:
        parts += [Text(), Text("Incidents, newest first (phases in seconds)", style="bold")]
        parts.append(rendering.incidents(status.incidents))
    conditions = [one for one in status.conditions if one.status != "False"]
    if conditions:
        rows = [(clean(one.type), one.status, clean(one.reason), clean(one.message)) for one in conditions]
        parts += [Text(), rendering.table(("CONDITION", "STATUS", "REASON", "BECAUSE"), rows, fold="BECAUSE")]
    return Group(*parts)


def _facts(state: StateDirectory, found: Look) -> list[str]:
    status, folder = found.snapshot.status, state.gang(found.job.metadata.name)
    point = status.restore_point
    facts: list[str] = []
    if point is not None:
        at = f" ({clean(point.path)})" if point.path else ""
        facts.append(f"restore point: step {point.step} of tier {clean(point.tier)}{at}")
    elif found.job.spec.checkpoint is not None:
        facts.append("restore point: none yet, an attempt starts from the beginning")
    facts += [
        f"master of {clean(master.process_group)}: {clean(master.address)}:{master.port}" for master in status.masters
    ]
    facts.append(f"logs: {clean(folder.pods / Path('POD') / 'worker.log')}")
    return facts
