"""``gangctl version`` and ``gangctl crd``: print what this release is, and the CustomResourceDefinition it needs."""

import argparse
import platform
import sys

from gangctl import __version__
from gangctl.api.names import API_VERSION
from gangctl.cli.errors import ExitCode
from gangctl.cli.printers.output import as_json, print_out


class Version:
    """Print the versions of the program, the API and Python."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""
        parser.add_argument("-o", "--output", choices=["json"], help="print JSON, for programs")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the versions."""
        found = {"gangctl": __version__, "api": API_VERSION, "python": platform.python_version()}
        if arguments.output == "json":
            print_out(as_json(found))
        else:
            print_out(f"gangctl {__version__} (API {API_VERSION}, Python {found['python']})")
        return ExitCode.OK


class Crd:
    """Print the CustomResourceDefinition for kubectl apply."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""
        parser.epilog = """\
example:
  gangctl crd | kubectl apply --server-side -f -
"""

    def run(self, _arguments: argparse.Namespace) -> int:
        """Print the CustomResourceDefinition as YAML."""
        from gangctl.api.crd import crd_yaml  # noqa: PLC0415 - a version takes no types

        sys.stdout.write(crd_yaml())
        sys.stdout.flush()
        return ExitCode.OK


version, crd = Version(), Crd()
