"""``gangctl crd``: print the CustomResourceDefinition for kubectl apply."""

from __future__ import annotations

import argparse
import sys

from gangctl.api.crd import crd_yaml


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = """\
example:
  gangctl crd | kubectl apply --server-side -f -
"""


def run(_arguments: argparse.Namespace) -> int:
    """Print the CustomResourceDefinition as YAML."""
    sys.stdout.write(crd_yaml())
    sys.stdout.flush()
    return 0
