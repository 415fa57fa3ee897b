"""``gangctl delete``: end every process of a gang and remove the gang."""

from __future__ import annotations

import argparse

from gangctl.cli import ending
from gangctl.cli.targets import selection


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.description = """\
Delete a gang. On this machine: stop it as gangctl stop does, then remove it with its logs, also without a controller.
On a cluster: delete the GangJob as kubectl delete does; its pods are deleted with it. Checkpoints are never touched."""
    parser.epilog = f"""\
examples:
  gangctl delete demo
  gangctl delete demo -n research

Nothing is asked: use gangctl stop to keep the gang. Permissions on a cluster: get and delete gangjobs.

{ending.EXIT_CODES}"""
    ending.configure(parser, "the grace period and half a minute; on a cluster 60 s")


def run(arguments: argparse.Namespace) -> int:
    """Delete the gang."""
    with selection.open_target(arguments) as target:
        done = target.delete(arguments.name, arguments.wait, ending.tell)
    return ending.over(arguments.name, "deleted", done=done)
