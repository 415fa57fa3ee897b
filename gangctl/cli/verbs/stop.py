"""``gangctl stop``: end every process of a gang; the gang itself is kept."""

from __future__ import annotations

import argparse

from gangctl.cli import ending
from gangctl.cli.targets import selection


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Stop a gang: end all its processes or pods, and wait until none is left. It does what gangctl suspend does, waits for it
and, on this machine, works without a controller (after gangctl run was killed). Workers have
recovery.plannedStopGracePeriodSeconds for a last checkpoint. The gang, its attempt and its restore point are kept."""
    parser.epilog = f"""\
examples:
  gangctl stop demo
  gangctl stop demo --wait 10           give up waiting after 10 s; the stop goes on
  gangctl resume demo                   continue; on this machine without a controller, also gangctl run FILE
  gangctl delete demo                   stop it, and remove it

On this machine, without a controller, Ctrl-C kills at once what is left. Permissions on a cluster: get and patch
gangjobs, list pods.

{ending.EXIT_CODES}"""
    ending.configure(parser, "the grace period, and half a minute")


def run(arguments: argparse.Namespace) -> int:
    """Stop the gang."""
    with selection.open_target(arguments) as target:
        done = target.stop(arguments.name, arguments.wait, ending.tell)
    return ending.over(arguments.name, "stopped", done=done)
