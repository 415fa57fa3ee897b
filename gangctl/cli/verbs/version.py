"""``gangctl version``: print the versions of the program, the API and Python."""

from __future__ import annotations

import argparse
import platform

from gangctl import __version__
from gangctl.api.version import API_VERSION
from gangctl.cli.printers.output import as_json, print_out


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the version of the program and of the API."""
    found = {"gangctl": __version__, "api": API_VERSION, "python": platform.python_version()}
    if arguments.output == "json":
        print_out(as_json(found))
    else:
        print_out(f"gangctl {__version__} (API {API_VERSION}, Python {found['python']})")
    return 0
