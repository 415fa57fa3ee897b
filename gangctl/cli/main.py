"""``gangctl``: finds the verb, runs it, and turns what went wrong into one line.

Only the verb that is asked for is imported, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, Protocol, cast

from gangctl import __version__
from gangctl.api.escaping import escaped
from gangctl.cli.command_name import command_name, is_plugin
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cluster.errors import ClusterError

_VERBS: Final = {
    "run": "Run a gang on this machine and watch it",
    "status": "Show gangs, or one gang in detail",
    "trace": "Draw one incident to scale: what failed, what was decided, what each second was spent on",
    "restart": "Start a new attempt of a gang, uncharged",
    "suspend": "Stop a gang and give its pods back; attempt and restore point stay",
    "resume": "Let a suspended gang go on",
    "logs": "Show what workers print, by member, role or rank",
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
  gangctl trace demo                          what each second of its last restart was spent on
  gangctl classify job.yaml --exit-code 78    what would your failure policy do?

`gangctl VERB --help` says more. GANGCTL_DEBUG=1 shows tracebacks.
"""
_PLUGIN_EXAMPLES: Final = """\
examples:
  gangctl status -A                               all gangs of the cluster
  gangctl status demo -n research                 why it restarted, what was lost, what happens next
  gangctl trace demo -n research                  what each second of its last restart was spent on
  gangctl logs demo --rank 3 -f                   what the worker of one rank says
  gangctl inject demo worker-1 --signal KILL      kill a worker, see the gang come back

`gangctl VERB --help` says more. GANGCTL_DEBUG=1 shows tracebacks.
"""
_ELSEWHERE: Final = {
    "run": "; gangs of a cluster are submitted with kubectl apply -f FILE, gangctl run is for this machine"
}
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # What a terminal can't show is no reason to end.
    try:
        return _dispatch(given)
    except BrokenPipeError:
        # Nobody reads any more. What Python flushes at its exit must not fail once again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except (UserError, ClusterError) as error:
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
    verbs = _verbs()
    if name not in verbs:
        near = get_close_matches(name, verbs, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(verbs)}"
        raise UserError(f"there is no verb {name!r}: {hint}{_ELSEWHERE.get(name, '')}")
    verb = cast("Verb", importlib.import_module(f"gangctl.cli.{name}"))
    parser = argparse.ArgumentParser(
        prog=f"{command_name()} {name}",
        description=f"{_VERBS[name]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.configure(parser)
    parser.description, parser.epilog = _as_called(parser.description), _as_called(parser.epilog)
    return verb.run(parser.parse_args(given[1:]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command_name(),
        usage=f"{command_name()} VERB [ARGUMENT ...]",
        description=f"gangctl {__version__}: gangs of processes that restart together, in place, from a checkpoint.",
        epilog=_as_called(_PLUGIN_EXAMPLES if is_plugin() else _EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    verbs = parser.add_argument_group("verbs")
    for name, meaning in _verbs().items():
        verbs.add_argument(name, help=meaning, nargs="?")
    return parser


def _verbs() -> dict[str, str]:
    """A plugin of kubectl has those that mean a cluster."""
    return {name: meaning for name, meaning in _VERBS.items() if not is_plugin() or name not in _ELSEWHERE}


def _as_called(text: str | None) -> str | None:
    """Examples with the name that the user types."""
    return text and re.sub(rf"\bgangctl (?=VERB|{'|'.join(_verbs())})", f"{command_name()} ", text)


def _said(text: str) -> None:
    sys.stderr.write("error: " + "\n".join(escaped(line) for line in text.split("\n")) + "\n")
