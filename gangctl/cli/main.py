"""``gangctl``: dispatches to the module of the verb, and turns errors into one line.

Only the module of the requested verb is imported, so that ``--help`` is fast.
"""

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from contextvars import copy_context
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gangctl import __version__
from gangctl.cli.command_name import command_name, is_plugin, remember_target
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.registry import ON_A_CLUSTER, VerbModule, verbs
from gangctl.cluster.errors import ClusterError

_EXAMPLES: Final = """\
examples:
  gangctl init                                write a manifest for your script; then check it and run it
  gangctl run examples/demo.yaml              run a gang on this machine; Ctrl-C ends it
  gangctl inject demo worker-1 --signal KILL  in another terminal: kill a worker, watch the restart
  gangctl status demo                         why it restarted, what was lost, what happens next
  gangctl why demo                            why it does not run or restarted, and what to do
  gangctl trace demo                          where the time of the last restart went
  gangctl classify job.yaml --exit-code 78    what your failure policy would do
  gangctl convert jobset.yaml                 the same training as a GangJob

`gangctl VERB --help` shows the options and examples of a verb. GANGCTL_DEBUG=1 shows tracebacks.
"""
_PLUGIN_EXAMPLES: Final = """\
examples:
  gangctl status -A                               all gangs of the cluster
  gangctl status demo -n research                 why it restarted, what was lost, what happens next
  gangctl why demo -n research                    why it does not run or restarted, and what to do
  gangctl trace demo -n research                  where the time of the last restart went
  gangctl logs demo --rank 3 -f                   follow the log of one rank
  gangctl inject demo worker-1 --signal KILL      kill a worker, watch the restart

`gangctl VERB --help` shows the options and examples of a verb. GANGCTL_DEBUG=1 shows tracebacks.
"""
_BROKEN_PIPE: Final = 141
"""Exit code that shells show for a program that SIGPIPE ended."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a disk or a quota, wherever the output goes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return copy_context().run(_main, arguments)  # The target that it selects is forgotten with it.


def _main(arguments: Sequence[str] | None) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from gangctl.cli.verbs.completion import complete  # noqa: PLC0415 - only a shell asks for it

        complete(verbs())
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # It was closed, as by >&-.
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the process ends
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal can't show isn't an error
    try:
        return _dispatch(given)
    except BrokenPipeError:
        _drop_output()  # The reader of the pipe is gone.
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except (UserError, ClusterError) as error:
        _print_error(str(error))
    except Exception as error:  # the outermost frame: a traceback isn't a message for users
        if os.environ.get("GANGCTL_DEBUG"):
            raise
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, OSError) and first.errno in _FULL:
            _drop_output()
            where = f"{first.filename} can't be written" if first.filename else "nothing more can be written"
            _print_error(f"{where}: {first.strerror}")
            return ExitCode.FAILED
        _print_error(f"{type(first).__name__}: {first}; this is a bug in gangctl: set GANGCTL_DEBUG=1 for a traceback")
        return ExitCode.FAILED
    return ExitCode.BAD_INPUT


def _dispatch(given: list[str]) -> int:
    if given[:1] == ["help"] and len(given) > 1:
        given = [given[1], "--help"]
    if not given or given[0] in {"-h", "--help", "help"}:
        _parser().print_help(sys.stdout)
        return ExitCode.OK if given else ExitCode.BAD_INPUT
    verb, arguments = parsed_command(["version"] if given[0] == "--version" else given)
    remember_target(vars(arguments))
    return verb.run(arguments)


def parsed_command(given: Sequence[str]) -> tuple[VerbModule, argparse.Namespace]:
    """The verb of a command line, and its arguments.

    Raises:
        UserError: there is no such verb.
        SystemExit: its help was asked for, or its arguments are wrong, which is printed.
    """
    name, *words = given
    found = verbs()
    if name not in found:
        near = get_close_matches(name, found, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(found)}"
        raise UserError(f"there is no verb {name!r}: {hint}{ON_A_CLUSTER.get(name, '')}")
    verb = found[name].load()
    parser = argparse.ArgumentParser(
        prog=f"{command_name()} {name}",
        description=f"{found[name].meaning}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.configure(parser)
    parser.description, parser.epilog = _as_called(parser.description), _as_called(parser.epilog)
    # An option may stand between two arguments, as in `logs demo -f worker-0`: what comes after it is left.
    known, left = parser.parse_known_args(words)
    return verb, parser.parse_intermixed_args(words) if left else known


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command_name(),
        usage=f"{command_name()} VERB [ARGUMENT ...]",
        description=f"gangctl {__version__}: gangs of processes that restart together, in place, from a checkpoint.",
        epilog=_as_called(_PLUGIN_EXAMPLES if is_plugin() else _EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    group = parser.add_argument_group("verbs")
    for name, verb in verbs().items():
        group.add_argument(name, help=verb.meaning, nargs="?")
    return parser


def _as_called(text: str | None) -> str | None:
    """The text, with the command name that the user typed."""
    return text and re.sub(rf"\bgangctl (?=VERB|{'|'.join(verbs())})", f"{command_name()} ", text)


def _drop_output() -> None:
    """Write no more to stdout, so that Python's flush at exit doesn't fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(text: str) -> None:
    from gangctl.cli.printers.text import clean  # noqa: PLC0415 - `--help` needs none of what it imports

    sys.stderr.write("error: " + "\n".join(clean(line) for line in text.split("\n")) + "\n")
