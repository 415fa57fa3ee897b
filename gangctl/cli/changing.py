"""Changes of a stored spec: what restart, suspend and resume have in common."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

from gangctl.api.gangjob import GangJob, Spec
from gangctl.cli import gangs
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.output import say, tell
from gangctl.cli.text import clean
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.inject import controller_pid
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.store import FINISHED, GangStore

LOOK_SECONDS: Final = 0.1
"""How often a stored gang is looked at while a change is waited for."""
EXIT_CODES: Final = """\
exit codes: 0 done (with --wait: and it came to be), 1 it didn't within --wait, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments that all of them have."""
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=0.0, help="wait so long for it to have come to be (default: 0)"
    )
    gangs.add_state_dir(parser)


def change(
    arguments: argparse.Namespace, what: str, to: Callable[[Spec], Spec], arrived: Callable[[GangJob], bool]
) -> int:
    """Write the spec; with --wait, wait until ``arrived``. ``what``: what was asked for, for the user."""
    state = gangs.state_directory(arguments)
    store = gangs.find(state, arguments.name)
    before = gangs.read(store)
    if before.status.phase in FINISHED:
        raise UserError(f"gang {arguments.name} has ended ({before.status.phase}); gangctl run FILE starts it anew")
    try:
        after = store.update_spec(to)
    except ClusterError as error:
        raise UserError(str(error)) from None
    unchanged = after.metadata.generation == before.metadata.generation
    say(f"{arguments.name}: {what}{' (it was so already)' if unchanged else ''}")
    _warn_without_controller(state)
    return _await(store, arguments.wait, arrived) if arguments.wait > 0 else ExitCode.OK


def _await(store: GangStore, seconds: float, arrived: Callable[[GangJob], bool]) -> int:
    end = time.monotonic() + seconds
    while True:
        job = gangs.read(store)
        if arrived(job):
            say(f"{job.metadata.name}: {job.status.phase}, attempt {job.status.attempt}: {clean(job.status.message)}")
            return ExitCode.OK
        if job.status.phase in FINISHED or time.monotonic() >= end:
            tell(
                f"error: it is {job.status.phase or 'new'} (attempt {job.status.attempt}: {job.status.message}) "
                f"after --wait {seconds:g}; gangctl status {job.metadata.name} says more"
            )
            return ExitCode.FAILED
        time.sleep(LOOK_SECONDS)


def _warn_without_controller(state: StateDirectory) -> None:
    try:
        controller_pid(state)
    except ClusterError:
        tell(f"no controller runs for {state.path}: it takes effect with the next gangctl run")
