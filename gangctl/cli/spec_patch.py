"""Patches of a stored spec: the common part of restart, suspend and resume."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

from gangctl.api.changes import SpecChanges
from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets import selection

EXIT_CODES: Final = """\
Permissions on a cluster: get and patch gangjobs; with --wait also list and watch,
and for suspend list pods.

exit codes: 0 done (with --wait: the gang reached the state), 1 it did not within --wait, 2 bad input or refused
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that these verbs share."""
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=0.0,
        help="wait up to SECONDS for the gang to reach the state (default: 0)",
    )
    selection.configure(parser)


def change(arguments: argparse.Namespace, what: str, spec: SpecChanges, arrived: Callable[[GangJob], bool]) -> int:
    """Patch the spec; with --wait, wait until ``arrived``. ``what``: what was requested, for the user."""
    name, seconds = arguments.name, arguments.wait
    with selection.open_target(arguments) as target:
        before = target.read(name)
        if before.status.phase in ENDED:
            raise UserError(f"gang {name} has ended ({before.status.phase}); {target.rerun_hint(name)}")
        after = target.change(name, spec)
        unchanged = after.metadata.generation == before.metadata.generation
        print_out(f"{name}: {what}{' (no change)' if unchanged else ''}")
        target.warn_without_controller()
        if seconds <= 0:
            return ExitCode.OK
        end = time.monotonic() + seconds
        job = target.wait(name, lambda job: arrived(job) or job.status.phase in ENDED, seconds)
        done = arrived(job)
        if done and job.status.phase is GangPhase.SUSPENDED:  # The status says so before the pods have gone.
            done = target.stop(name, end - time.monotonic(), lambda _: None)
    if done:
        print_out(f"{name}: {job.status.phase}, attempt {job.status.attempt}: {clean(job.status.message)}")
        return ExitCode.OK
    print_err(
        f"error: after {seconds:g} s gang {name} is {job.status.phase or 'New'}, attempt {job.status.attempt}: "
        f"{job.status.message or 'no message'}; for details, run gangctl status {name}"
    )
    return ExitCode.FAILED
