"""What the verbs stop and delete have in common."""

from __future__ import annotations

import argparse
from typing import Final

from gangctl.cli.errors import ExitCode
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets import selection

EXIT_CODES: Final = "exit codes: 0 done, 1 not within --wait (it goes on), 2 bad input or refused\n"


def configure(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the arguments; ``default``: how long it is waited for without --wait."""
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=None, help=f"how long to wait for it (default: {default})"
    )
    selection.configure(parser)


def tell(text: str) -> None:
    """Print one line about what is done."""
    print_out(clean(text))


def over(name: str, what: str, *, done: bool) -> int:
    """The exit code; if it isn't done, the user is told."""
    if done:
        return ExitCode.OK
    print_err(f"error: {name} is not {what} yet; it goes on: gangctl status {name} shows what is left")
    return ExitCode.FAILED
