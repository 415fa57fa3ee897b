"""``gangctl logs``: print the logs of workers, by member, role or rank."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.cli import members
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.output import print_out
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import LogOptions
from gangctl.cli.text import clean, output_line

_EPILOG: Final = """\
examples:
  gangctl logs demo                       all members, each line with the name of its member
  gangctl logs demo worker-1 --tail 20    the last lines of one member
  gangctl logs demo --rank 3 -f           follow the member that has rank 3 now
  gangctl logs demo worker-1 --previous   the previous container (on this machine: the previous pod)
  gangctl logs demo worker-1 --sidecar    the sidecar that gangctl adds to the pod

The log of a container holds all its attempts and processes. If a node restarts all containers of a pod at once
(RestartAllContainers), it keeps no previous log. Permissions on a cluster: get gangjobs, list pods, get pods/log.

exit codes: 0 shown, 2 bad input, or there is no such log
"""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd]?)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="name of the gang")
    parser.add_argument("member", metavar="MEMBER", nargs="?", help="a member such as worker-1 (default: all)")
    parser.add_argument("--rank", metavar="R", type=members.rank, help="the member that has this rank now")
    parser.add_argument(
        "--role", metavar="ROLE", help="all members of a role; with --rank, the role whose ranks are meant"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until it ends or Ctrl-C")
    parser.add_argument("-p", "--previous", action="store_true", help="print the log of the previous container")
    parser.add_argument(
        "--sidecar", action="store_true", help="print the log of gangctl's sidecar instead of the worker's"
    )
    parser.add_argument("--tail", metavar="LINES", type=_lines, help="print only the last LINES lines")
    parser.add_argument(
        "--since", metavar="TIME", type=_seconds, help="print only newer lines: 90s, 10m, 2h (only on a cluster)"
    )
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the logs."""
    with selection.open_target(arguments) as target:
        job = target.read(arguments.name)
        chosen = _members(job, arguments)
        options = LogOptions(
            members=tuple(chosen),
            sidecar=arguments.sidecar,
            follow=arguments.follow,
            previous=arguments.previous,
            tail=arguments.tail,
            since=arguments.since,
        )
        target.logs(job, options, _with_name if len(chosen) > 1 else _without_name)
    return ExitCode.OK


def _members(job: GangJob, arguments: argparse.Namespace) -> list[str]:
    if arguments.member is not None:
        if arguments.rank is not None or arguments.role is not None:
            raise UserError("name a member or select one by --rank or --role, not both")
        return [members.known_member(job, arguments.member)]
    if arguments.rank is not None:
        return [members.member_of_rank(job, arguments.rank, arguments.role)]
    return members.members(job) if arguments.role is None else members.members_of_role(job, arguments.role)


def _with_name(member: str, line: bytes) -> None:
    _write(f"{clean(member)} | ".encode(), line)


def _without_name(_member: str, line: bytes) -> None:
    _write(b"", line)


def _write(prefix: bytes, line: bytes) -> None:
    """Unchanged into a pipe; without control characters on a terminal."""
    if sys.stdout.isatty():
        print_out(prefix.decode() + output_line(line.decode(errors="replace")))
        return
    sys.stdout.buffer.write(prefix + line + b"\n")
    sys.stdout.buffer.flush()


def _lines(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} instead of a number of lines")
    return int(text)


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} instead of a time such as 90s, 10m, 2h or 1d")
    return int(match[1]) * _UNITS[match[2] or "s"]
