"""Changes of a stored spec: what restart, suspend and resume have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from gangctl.api.changes import SpecChanges
from gangctl.api.gangjob import GangJob
from gangctl.cli.command_name import command_name
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.output import print_err, print_out
from gangctl.cli.targets import selection
from gangctl.cli.text import clean
from gangctl.cluster.local.gang_store import FINISHED

EXIT_CODES: Final = """\
On a cluster it needs the rights get and patch on gangjobs; with --wait also list and watch.

exit codes: 0 done (with --wait: and it came to be), 1 it didn't within --wait, 2 bad input, or it was refused
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments that all of them have."""
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=0.0, help="wait so long for it to have come to be (default: 0)"
    )
    selection.configure(parser)


def change(arguments: argparse.Namespace, what: str, spec: SpecChanges, arrived: Callable[[GangJob], bool]) -> int:
    """Write fields of the spec; with --wait, wait until ``arrived``. ``what``: what was asked for, for the user."""
    name, seconds = arguments.name, arguments.wait
    with selection.open_target(arguments) as target:
        before = target.read(name)
        if before.status.phase in FINISHED:
            raise UserError(f"gang {name} has ended ({before.status.phase}); {target.rerun_hint(name)}")
        after = target.change(name, spec)
        unchanged = after.metadata.generation == before.metadata.generation
        print_out(f"{name}: {what}{' (it was so already)' if unchanged else ''}")
        target.warn_without_controller()
        if seconds <= 0:
            return ExitCode.OK
        job = target.wait(name, lambda job: arrived(job) or job.status.phase in FINISHED, seconds)
    if arrived(job):
        print_out(f"{name}: {job.status.phase}, attempt {job.status.attempt}: {clean(job.status.message)}")
        return ExitCode.OK
    print_err(
        f"error: it is {job.status.phase or 'new'} (attempt {job.status.attempt}: {job.status.message or 'no news'}) "
        f"after --wait {seconds:g}; {command_name()} status {name} says more"
    )
    return ExitCode.FAILED
