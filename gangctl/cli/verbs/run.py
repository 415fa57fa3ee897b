"""``gangctl run`` and ``gangctl rerun``: run a gang on this machine to its end, from a manifest or as it is stored."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import UserError
from gangctl.cli.local import gangs as local_gangs
from gangctl.cli.local.controller_process import only_run
from gangctl.cli.local.gangs import stored_if_runnable, submit_gang
from gangctl.cli.local.session import LocalRun, run_gangs
from gangctl.cli.manifests import configure_overrides, load_manifests
from gangctl.cli.printers.displays import Display, LiveDisplay, PlainOutput
from gangctl.cli.printers.output import as_json, console, is_terminal, print_err, print_out
from gangctl.cli.targets import selection
from gangctl.cli.verbs.requests import print_done
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY, StateDirectory

if TYPE_CHECKING:
    from gangctl.cli.page import PageProxy

_DESCRIPTION: Final = """\
Run a gang on this machine and watch it. Its members are processes: no cluster, root or container engine is needed. The
command returns when the gang has ended. If a gang of this name exists, it is taken over without touching its workers;
if it has ended, a new one replaces it. Several GangJobs of a file run beside each other, with a line for each change; a
gang that fails ends alone.
"""
_EPILOG: Final = """\
examples:
  gangctl run examples/demo.yaml              watch it on the terminal
  gangctl run job.yaml --plain | tee run.log  one line for each change
  gangctl run job.yaml --logs                 with the workers' output: worker-0 | step 12
  gangctl run job.yaml --set 'spec.roles[0].replicas=2'
  gangctl run job.yaml --ui                   with its live page for a browser of this machine
  gangctl run job.yaml -o json 2>/dev/null    one JSON object at the end: {"status": ..., "members": [...]}

in another terminal:
  gangctl inject demo worker-1 --signal SIGKILL
  gangctl suspend demo

Ctrl-C ends all processes of the gang and removes it; gangctl logs still has its logs. A second Ctrl-C kills them at
once. With --keep the gang continues, and the next gangctl run takes it over. A gang that is held or suspended is never
removed. The logs of a new gang begin empty; gangctl logs NAME --previous has those of the gang before.

exit codes: 0 the gang succeeded, 1 it failed, 2 bad input (nothing was started), 3 it is held or suspended, 130
interrupted (Ctrl-C, SIGTERM, or the terminal or the reader of the pipe is gone)
"""
_RERUN_DESCRIPTION: Final = """\
Run a gang again that has succeeded or failed, as a new gang of the same name and spec: attempt 1, an unused budget, and
the newest checkpoint of its tiers. On this machine it is run and watched as by gangctl run, from its stored manifest,
in the folder where it ran; gangctl logs NAME --previous has its old logs. On a cluster, the GangJob is deleted and
created again with its labels and annotations. What gangctl suspend and restart have set is not taken over."""
_RERUN_EPILOG: Final = """\
examples:
  gangctl rerun demo
  gangctl rerun demo --logs             on this machine: with the workers' output
  gangctl rerun demo -n research

A gang that has not ended is not run again: gangctl restart starts a new attempt of it, gangctl resume continues one
that is stopped.
Permissions on a cluster: get, delete and create gangjobs.

exit codes: on this machine those of gangctl run; on a cluster 0 created, 2 bad input or refused
"""
_HERE_ONLY: Final = ("plain", "logs", "keep", "output")
"""Options that a cluster doesn't have."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("file", metavar="FILE", help="manifest of a GangJob, or of several; - reads stdin")
    configure_overrides(parser)
    _configure_display(parser)
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        help=f"state directory (default: ${local_gangs.STATE_VARIABLE} or {DEFAULT_STATE_DIRECTORY})",
    )


class Rerun:
    """Run a gang again that has ended."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""
        parser.description, parser.epilog = _RERUN_DESCRIPTION, _RERUN_EPILOG
        parser.add_argument("name", metavar="NAME", help="name of the gang")
        _configure_display(parser)
        selection.configure(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the gang again."""
        flag = next((flag for flag in _HERE_ONLY if getattr(arguments, flag)), "")
        if flag and selection.state_directory(arguments) is None:
            raise UserError(f"--{flag} is for gangs of this machine: a cluster runs the gang by itself; leave it out")
        with selection.open_target(arguments) as target:
            name = arguments.name
            phase = target.logged(name).status.phase
            if phase not in ENDED and not target.is_removed(name):
                verb = "resume" if phase is GangPhase.SUSPENDED else "restart"
                effect = "continues it" if phase is GangPhase.SUSPENDED else "starts a new attempt of it"
                raise UserError(
                    f"gang {name} has not ended ({phase or 'New'}): gangctl {verb} {name} {effect}; to run it anew, "
                    f"gangctl delete {name} and submit its manifest"
                )
            return target.rerun(name, partial(_run_gang, arguments), print_done)


rerun = Rerun()


def _configure_display(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of how a gang is watched, and left."""
    parser.add_argument(
        "--plain", action="store_true", help="print one line for each change (the default without a terminal)"
    )
    parser.add_argument("--logs", action="store_true", help="print the workers' output")
    parser.add_argument("--ui", action="store_true", help="print the address of the gang's page, for a browser")
    parser.add_argument("--keep", action="store_true", help="leave the gang's processes running when interrupted")
    parser.add_argument(
        "-o",
        "--output",
        choices=["json"],
        help="print JSON at the end, an object, or a list for several gangs; progress goes to stderr",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the gang to its end."""
    jobs = load_manifests(arguments.file, arguments.overrides)
    state = local_gangs.absolute(arguments.state_dir or local_gangs.default_state_directory())
    return _run_gangs(arguments, state, jobs, Path.cwd())


def _run_gang(arguments: argparse.Namespace, state: StateDirectory, job: GangJob, directory: Path) -> int:
    return _run_gangs(arguments, state, (job,), directory)


def _run_gangs(arguments: argparse.Namespace, state: StateDirectory, jobs: Sequence[GangJob], directory: Path) -> int:
    """Run gangs to their end. ``directory``: the base of relative paths of their workers."""
    with only_run(state):
        page = _page(state) if arguments.ui else None
        runs: list[LocalRun] = []
        try:
            alone = len(jobs) == 1
            for job in () if alone else jobs:  # All or none of them are stored.
                stored_if_runnable(GangStore(state.gang(job.metadata.name)), job, directory)
            runs.extend(_prepare(arguments, state, job, directory, page, alone=alone) for job in jobs)
            code = asyncio.run(run_gangs(state, page, runs))
        finally:
            for one in runs:
                one.close()
            if page is not None:
                page.close()
    if arguments.output == "json":
        documents = [one.document() for one in runs]
        print_out(as_json(documents[0] if len(documents) == 1 else documents))
    return code


def _prepare(
    arguments: argparse.Namespace,
    state: StateDirectory,
    job: GangJob,
    directory: Path,
    page: PageProxy | None,
    *,
    alone: bool,
) -> LocalRun:
    """Submit a gang. ``alone``: the display is for it only."""
    submitted = submit_gang(state, job, directory)
    for text in submitted.notes:
        print_err(f"note: {text}")
    stream = sys.stderr if arguments.output == "json" else sys.stdout
    footer = [f"logs: {submitted.store.folder.pods}/*/worker.log"]
    if page is not None:
        address = page.address(job.metadata.namespace, job.metadata.name)
        footer.insert(0, f"page: {address} (works once, in one browser)")
    display = _display(stream, footer, plain=arguments.plain, gang="" if alone else job.metadata.name)
    display.note(submitted.message)
    return LocalRun(state, submitted.store, display, stream, logs=arguments.logs, keep=arguments.keep)


def _page(state: StateDirectory) -> PageProxy:
    # imported only here, because aiohttp takes longer than a start
    from gangctl.cli.page import LocalController, PageProxy  # noqa: PLC0415

    return PageProxy(LocalController(state))


def _display(stream: TextIO, footer: Sequence[str], *, plain: bool, gang: str) -> Display:
    if plain or gang or not is_terminal(stream):
        lines = PlainOutput(stream, time.time, gang)
        for line in footer:
            lines.note(line)
        return lines
    return LiveDisplay(console(stream), [*footer[:-1], f"{footer[-1]}   Ctrl-C: end it"])
