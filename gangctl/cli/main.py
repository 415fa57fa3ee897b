"""``gangctl``: finds the verb, runs it, and turns what went wrong into one line.

Only the verb that is asked for is imported, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, Protocol, cast

from gangctl import __version__
from gangctl.cli.errors import ExitCode, UserError

_VERBS: Final = {
    "run": "Run a gang on this machine and watch it",
    "status": "Show gangs, or one gang in detail",
    "restart": "Start a new attempt of a gang, uncharged",
    "suspend": "Stop a gang and give its pods back; attempt and restore point stay",
    "resume": "Let a suspended gang go on",
    "inject": "Do harm on purpose: kill, hang or end a member, its sidecar or the controller",
    "classify": "Dry run: which rule of podFailurePolicy catches this fault, and why",
    "crd": "Print the CustomResourceDefinition of GangJob",
    "version": "Print the version",
}
_EXAMPLES: Final = """\
examples:
  gangctl run examples/demo.yaml              run a gang here, watch it, Ctrl-C ends it
  gangctl inject demo worker-1 --signal KILL  in another terminal: kill a worker, see the gang come back
  gangctl status demo                         why it restarted, what was lost, what happens next
  gangctl classify job.yaml --exit-code 78    what would your failure policy do?

`gangctl VERB --help` says more. GANGCTL_DEBUG=1 shows tracebacks.
"""
_BROKEN_PIPE: Final = 141
"""As a shell shows a program that SIGPIPE ended."""


class Verb(Protocol):
    """What the module of a verb offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; gives the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(given)
    except BrokenPipeError:
        # Nobody reads any more. What Python flushes at its exit must not fail once again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except UserError as error:
        _said(str(error))
    except Exception as error:  # the outermost frame: a traceback is no message for users
        if os.environ.get("GANGCTL_DEBUG"):
            raise
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        _said(f"{type(first).__name__}: {first}; this should not happen: GANGCTL_DEBUG=1 shows where it did")
        return ExitCode.FAILED
    return ExitCode.BAD_INPUT


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in {"-h", "--help", "help"}:
        _parser().print_help(sys.stdout)
        return ExitCode.OK if given else ExitCode.BAD_INPUT
    name = "version" if given[0] == "--version" else given[0]
    if name not in _VERBS:
        near = get_close_matches(name, _VERBS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_VERBS)}"
        raise UserError(f"there is no verb {name!r}: {hint}")
    verb = cast("Verb", importlib.import_module(f"gangctl.cli.{name}"))
    parser = argparse.ArgumentParser(
        prog=f"gangctl {name}",
        description=f"{_VERBS[name]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.configure(parser)
    return verb.run(parser.parse_args(given[1:]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gangctl",
        usage="gangctl VERB [ARGUMENT ...]",
        description=f"gangctl {__version__}: gangs of processes that restart together, in place, from a checkpoint.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    verbs = parser.add_argument_group("verbs")
    for name, meaning in _VERBS.items():
        verbs.add_argument(name, help=meaning, nargs="?")
    return parser


def _said(text: str) -> None:
    line = "".join(letter if letter.isprintable() or letter == "\n" else f"\\x{ord(letter):02x}" for letter in text)
    sys.stderr.write(f"error: {line}\n")
