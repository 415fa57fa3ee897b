"""``gangctl completion``: print the script that lets a shell complete the command line."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from argcomplete.shell_integration import shellcode

from gangctl.cli.errors import ExitCode

_EPILOG: Final = """\
examples:
  source <(gangctl completion bash)                       in this shell
  echo 'source <(gangctl completion bash)' >> ~/.bashrc   in each new one
  echo 'source <(gangctl completion zsh)' >> ~/.zshrc     after compinit
  gangctl completion fish > ~/.config/fish/completions/gangctl.fish

Then the tab key completes verbs, options and their values, files, and the names of gangs and members: those of the
state directory, or those of the cluster if it answers within 1.5 s. After an upgrade nothing has to be done: the script
asks gangctl itself.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(shellcode(["gangctl"], use_defaults=False, shell=arguments.shell))
    sys.stdout.write("\n")
    return ExitCode.OK
