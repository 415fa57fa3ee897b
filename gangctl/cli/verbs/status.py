"""``gangctl status``: list gangs as `kubectl get gj` does, or show one with its reasons and next steps."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.displays import watch_lines
from gangctl.cli.printers.output import console, is_terminal, print_document, print_err, print_out, trim_lines
from gangctl.cli.printers.text import clean
from gangctl.cli.printers.trace import output_lines
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import Target
from gangctl.core.policy.hangs import stored_deadline
from gangctl.story import words

_EPILOG: Final = """\
examples:
  gangctl status                    all gangs of the namespace, or of this machine
  gangctl status -A                 all gangs of the cluster
  gangctl status --group torchft    the gangs of a replica group
  gangctl status demo               why it restarted, what was lost, what to do next
  gangctl status demo --watch       the same, updated until Ctrl-C; into a pipe a line for each change
  gangctl status demo -o json       the stored object, for programs
  gangctl trace demo                where the time of its last incident went

On this machine, without a running controller, it shows what was stored last. Permissions on a cluster: get and list
gangjobs; for one gang list pods; with --watch also watch both.

exit codes: 0 shown, 2 bad input, or the cluster does not answer
"""
_MOST_MEMBERS: Final = 64
_UNLED: Final = (
    "no controller answers: this is what was stored last, and nothing is restarted until one does (gangctl run FILE "
    "starts one)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of a gang (default: list all)")
    selection.configure_group(parser)
    parser.add_argument("-o", "--output", choices=["json", "yaml", "wide"], help="print whole objects, or more columns")
    parser.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="update the output until Ctrl-C; into a pipe, print a line for each change",
    )
    selection.configure(parser, everywhere=True)


def run(arguments: argparse.Namespace) -> int:
    """List gangs, or show one."""
    if arguments.name and arguments.all_namespaces:
        raise UserError("a gang is looked up by name in one namespace: use -n NAMESPACE instead of -A")
    if arguments.group and (arguments.watch or arguments.all_namespaces):
        raise UserError("a group is looked up once, in one namespace: leave out --watch and -A, or leave out --group")
    if arguments.watch and arguments.output in {"json", "yaml"}:
        raise UserError(f"--watch shows a table: leave out -o {arguments.output}, or leave out --watch")
    with selection.open_target(arguments) as target:
        if arguments.output in {"json", "yaml"}:
            _print_objects(target, arguments)
        elif arguments.watch and is_terminal(sys.stdout):
            _watch(target, arguments)
        elif arguments.watch:
            watch_lines(target, arguments.name, wide=arguments.output == "wide", everywhere=arguments.all_namespaces)
        else:
            _print(target, arguments)
    return ExitCode.OK


def _print(target: Target, arguments: argparse.Namespace) -> None:
    views = target.views(arguments.name)
    if arguments.group:
        views = [view for name in selection.names_of(target, arguments) for view in views if _name(view) == name]
    if not views:
        print_out(clean(f"there are no gangs in {target.location}: {target.start_hint}"))
        return
    if not arguments.name:
        running = sum(view.snapshot.status.phase is GangPhase.RUNNING for view in views)
        what = (
            f"{running} of {len(views)} gangs of the replica group {arguments.group} run"
            if arguments.group
            else "gangs"
        )
        print_err(clean(f"{what} in {target.location}"))
        if any(map(_is_unled, views)):
            print_err(_UNLED)
    out = console(sys.stdout)
    with trim_lines(out):
        out.print(_shown(target, arguments, views))


def _name(view: GangView) -> str:
    return view.job.metadata.name


def _watch(target: Target, arguments: argparse.Namespace) -> None:
    try:
        with Live(console=console(sys.stdout), auto_refresh=False) as live:

            def show(views: Sequence[GangView]) -> None:
                if views:
                    shown = _shown(target, arguments, views)
                    unled = not arguments.name and any(map(_is_unled, views))
                    live.update(Group(shown, Text(clean(_UNLED), style="yellow")) if unled else shown, refresh=True)
                else:
                    what = f"there is no gang {clean(arguments.name)} in" if arguments.name else "there are no gangs in"
                    live.update(Text(f"{what} {clean(target.location)}"), refresh=True)

            target.watch(arguments.name, show)
    except KeyboardInterrupt:
        return


def _print_objects(target: Target, arguments: argparse.Namespace) -> None:
    names = selection.names_of(target, arguments) if arguments.group else None
    documents = [one for one in target.documents(arguments.name) if names is None or one["metadata"]["name"] in names]
    found = [_as_shown(target, one) for one in documents]
    value = found[0] if arguments.name else {"apiVersion": "v1", "kind": "List", "items": found}
    print_document(value, arguments.output)


def _as_shown(target: Target, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object as it is stored; of a gang that Ctrl-C has removed, with the phase and reason that the text shows."""
    name = document["metadata"]["name"]
    if not target.is_removed(name):
        return document
    return {**document, "status": target.views(name)[0].status()}


def _shown(target: Target, arguments: argparse.Namespace, views: Sequence[GangView]) -> RenderableType:
    now = time.time()
    if arguments.name:
        return _details(target, views[0], now)
    return tables.gangs_table(views, now, wide=arguments.output == "wide", everywhere=arguments.all_namespaces)


def _is_unled(found: GangView) -> bool:
    """Return whether no controller acts for a gang that has not ended."""
    return not found.live and not found.stopped and found.snapshot.status.phase not in ENDED


def _details(target: Target, found: GangView, now: float) -> RenderableType:
    status = found.snapshot.status
    parts: list[RenderableType] = [tables.head(found, now)]
    because = found.stopped or status.message
    if because:
        parts.append(Text(f"because: {clean(because)}"))
    next_step = "" if found.stopped else words.advice(found.job)
    if next_step:
        parts.append(Text(f"next: {clean(next_step)}", style="bold"))
    if _is_unled(found):
        parts.append(Text(clean(_UNLED), style="yellow"))
    parts += [Text(line) for line in _facts(target, found)]
    if status.incidents and status.phase is not GangPhase.RUNNING:
        parts += [Text(line) for line in output_lines(status.incidents[0].output)]
    parts += [Text(), tables.members_table(found.snapshot.members, _MOST_MEMBERS, live=found.live, nodes=found.nodes)]
    if status.incidents:
        parts += [Text(), Text("Incidents, newest first (phases in seconds)", style="bold")]
        parts += [tables.incidents(status.incidents), Text(tables.trace_hint(found.job), style="dim")]
    conditions = [one for one in status.conditions if one.status != "False"]
    if conditions:
        parts += [Text(), tables.conditions(conditions)]
    return Group(*parts)


def _facts(target: Target, found: GangView) -> list[str]:
    status = found.snapshot.status
    point = status.restore_point
    facts: list[str] = [f"in: {clean(target.location)}"]
    group = found.job.spec.replica_group
    if group is not None:
        facts.append(f"replica group: {group.name}; gangctl status --group {group.name} shows its gangs")
    if point is not None:
        at = f" ({clean(point.path)})" if point.path else ""
        facts.append(f"restore point: step {point.step} of tier {clean(point.tier)}{at}")
    elif found.job.spec.checkpoint is not None:
        began, newest = status.started_attempt, status.completed_step
        how = (
            f"none, attempt {began} began at the beginning" if began else "none yet; an attempt starts at the beginning"
        )
        more = f"; step {newest.step} of tier {clean(newest.tier)} is complete now" if newest is not None else ""
        facts.append(f"restore point: {how}{more}")
    facts += [
        f"master of {clean(master.process_group)}: {clean(master.address)}:{master.port}" for master in status.masters
    ]
    how = words.start(status.incidents[0]) if status.incidents else ""
    if how:
        facts.append(f"last restart: {clean(how[0].lower() + how[1:])}")
    facts += map(clean, words.attempt_checks(status))
    deadline = stored_deadline(found.job)
    if deadline is not None:
        facts.append(f"hangs: {deadline.text}")
    hung = tables.hung(found.job)
    if hung:
        facts.append(hung)
    facts.append(f"logs: {clean(target.logs_hint(found.job.metadata.name))}")
    return facts
