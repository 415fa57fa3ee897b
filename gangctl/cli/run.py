"""``gangctl run``: a gang on this machine, from its manifest to its end."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final, TextIO

from gangctl.cli import local_gangs
from gangctl.cli.display import Display
from gangctl.cli.errors import UserError
from gangctl.cli.live_display import LiveDisplay
from gangctl.cli.local_run import LocalRun
from gangctl.cli.manifests import load_manifest
from gangctl.cli.output import as_json, console, is_terminal, print_out
from gangctl.cli.plain_output import PlainOutput
from gangctl.cli.run_lock import only_run
from gangctl.cli.submission import submit
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY

_DESCRIPTION: Final = """\
Run a gang on this machine and watch it: its members are processes, no cluster, root or container engine is needed.
It stays until the gang has ended. A gang that is there already (gangctl was killed) is taken over, and workers that run
are not touched. A gang of the same name that has ended is replaced by a new one.
"""
_EPILOG: Final = """\
examples:
  gangctl run examples/demo.yaml              watch it on a terminal
  gangctl run job.yaml --plain | tee run.log  one line for each change
  gangctl run job.yaml --logs                 with the workers' output: worker-0 | step 12
  gangctl run job.yaml -o json 2>/dev/null    one JSON object at the end: {"status": ..., "members": [...]}

while it runs, in another terminal:
  gangctl inject demo worker-1 --signal SIGKILL
  gangctl suspend demo

Ctrl-C ends every process of the gang and forgets it (logs stay); again: at once, with SIGKILL. With --keep the gang
goes on, and the next gangctl run takes it over. A gang that is held or suspended stays stored in either case.

exit codes: 0 the gang has succeeded, 1 it has failed, 2 bad input (nothing was started), 3 it is held or suspended
and was left so, 130 it was interrupted (Ctrl-C, SIGTERM, the terminal or the reader of the pipe is gone)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("file", metavar="FILE", help="manifest of a GangJob; - reads stdin")
    parser.add_argument("--plain", action="store_true", help="one line for each change (as where there is no terminal)")
    parser.add_argument("--logs", action="store_true", help="show the workers' output")
    parser.add_argument("--keep", action="store_true", help="when interrupted, leave the gang's processes running")
    parser.add_argument("-o", "--output", choices=["json"], help="end with one JSON object on stdout, watch on stderr")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        default=local_gangs.default_state_directory(),
        help=f"state directory (default: ${local_gangs.STATE_DIRECTORY} or {DEFAULT_STATE_DIRECTORY})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it to its end."""
    job = load_manifest(arguments.file)
    state = local_gangs.absolute(arguments.state_dir)
    with only_run(state):
        submitted = submit(state, job, Path.cwd())
        stream = sys.stderr if arguments.output == "json" else sys.stdout
        footer = f"logs: {submitted.store.folder.pods}/*/worker.log"
        display = _display(stream, footer, plain=arguments.plain)
        for text in submitted.said:
            display.note(text)
        local_run = LocalRun(state, submitted.store, display, stream, logs=arguments.logs, keep=arguments.keep)
        try:
            code = asyncio.run(local_run.run())
        except ClusterError as error:
            raise UserError(str(error)) from None
        finally:
            local_run.close()
    if arguments.output == "json":
        print_out(as_json(local_run.document()))
    return code


def _display(stream: TextIO, footer: str, *, plain: bool) -> Display:
    if plain or not is_terminal(stream):
        lines = PlainOutput(stream, time.time)
        lines.note(footer)
        return lines
    return LiveDisplay(console(stream), f"{footer}   Ctrl-C: end it")
