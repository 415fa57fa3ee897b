"""``gangctl rerun``: run a gang again that has ended."""

from __future__ import annotations

import argparse
from pathlib import Path

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli import ending
from gangctl.cli.errors import UserError
from gangctl.cli.targets import selection
from gangctl.cli.verbs.run import configure_display, run_gang
from gangctl.cluster.local.layout import StateDirectory


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Run a gang again that has succeeded or failed, as a new gang of the same name and spec: attempt 1, an unused budget, and
the newest checkpoint of its tiers. On this machine it is run and watched as by gangctl run, from its stored manifest,
in the folder where it ran; gangctl logs NAME --previous has its old logs. On a cluster, the GangJob is deleted and
created again with its labels and annotations. What gangctl suspend and restart have set is not taken over."""
    parser.epilog = """\
examples:
  gangctl rerun demo
  gangctl rerun demo --logs             on this machine: with the workers' output
  gangctl rerun demo -n research

A gang that has not ended is not run again: gangctl restart starts a new attempt of it, gangctl resume continues one
that is stopped.
Permissions on a cluster: get, delete and create gangjobs.

exit codes: on this machine those of gangctl run; on a cluster 0 created, 2 bad input or refused
"""
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    configure_display(parser)
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the gang again."""
    name = arguments.name

    def run_here(state: StateDirectory, job: GangJob, directory: Path) -> int:
        return run_gang(arguments, state, job, directory)

    here_only = [flag for flag, value in _here_only(arguments).items() if value]
    if here_only and selection.state_directory(arguments) is None:
        raise UserError(f"{here_only[0]} is for gangs of this machine: a cluster runs the gang by itself; leave it out")
    with selection.open_target(arguments) as target:
        phase = target.logged(name).status.phase
        if phase not in ENDED and not target.is_removed(name):
            verb = "resume" if phase is GangPhase.SUSPENDED else "restart"
            what = "continues it" if phase is GangPhase.SUSPENDED else "starts a new attempt of it"
            raise UserError(
                f"gang {name} has not ended ({phase or 'New'}): gangctl {verb} {name} {what}; to run it anew, "
                f"gangctl delete {name} and submit its manifest"
            )
        return target.rerun(name, run_here, ending.tell)


def _here_only(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "--plain": arguments.plain,
        "--logs": arguments.logs,
        "--keep": arguments.keep,
        "--output": arguments.output,
    }
