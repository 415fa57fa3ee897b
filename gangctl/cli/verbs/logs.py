"""``gangctl logs``: print the logs of workers, by member, role or rank."""

import argparse
import re
import sys
from functools import partial
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.cli.arguments import (
    all_members,
    checked_member,
    member_of_rank,
    members_of_role,
    number,
    rank,
    ranks_of_member,
)
from gangctl.cli.errors import ExitCode, UserError
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean, output_line
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import LogOptions, LogSource
from gangsidecar.wire import to_ranges

_EPILOG: Final = """\
examples:
  gangctl logs demo                       all members, each line with the name of its member
  gangctl logs demo worker-1 --tail 20    the last lines of one member
  gangctl logs demo --rank 3 -f           follow the member that has rank 3 now
  gangctl logs demo -f | grep -m 1 loss   end with the first line that has the word
  gangctl logs demo worker-1 --previous   the previous container (on this machine: the previous pod, or gang)
  gangctl logs demo worker-1 --gangctl    what gangctl did in the pod: supervisor and sidecar
  gangctl logs demo worker-1 --sidecar    of these the sidecar only

On this machine, logs outlive their gang: those of a gang that Ctrl-C removed are printed, too, and those of the gang
before are kept until the next one.

The log of a worker holds all its attempts and processes. The ranks of one pod share it, so --rank prints the lines of
all of them. gangctl's own lines are left out, also those that its supervisor writes into the log of the worker's
container on a cluster. If a node restarts all containers of a pod at once (RestartAllContainers), it keeps no previous
log. Permissions on a cluster: get gangjobs, list pods, get pods/log.

exit codes: 0 shown, 2 bad input, or there is no such log
"""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd]?)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    selection.configure_name(parser)
    parser.add_argument("member", metavar="MEMBER", nargs="?", help="a member such as worker-1 (default: all)")
    parser.add_argument("--rank", metavar="R", type=rank, help="the member that has this rank now")
    parser.add_argument(
        "--role", metavar="ROLE", help="all members of a role; with --rank, the role whose ranks are meant"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until it ends or Ctrl-C")
    parser.add_argument("-p", "--previous", action="store_true", help="print the log of the previous container")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--gangctl", action="store_true", help="print gangctl's own lines, of its supervisor and its sidecar, instead"
    )
    instead.add_argument("--sidecar", action="store_true", help="print those of its sidecar only")
    parser.add_argument(
        "--tail", metavar="LINES", type=number(0, 10**9, "a number of lines"), help="print only the last LINES lines"
    )
    parser.add_argument(
        "--since", metavar="TIME", type=_seconds, help="print only newer lines: 90s, 10m, 2h (only on a cluster)"
    )
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the logs."""
    with selection.open_target(arguments) as target:
        job = target.logged(selection.name_of(target, arguments))
        chosen = _members(job, arguments)
        options = LogOptions(
            members=tuple(chosen),
            source=_source(arguments),
            follow=arguments.follow,
            previous=arguments.previous,
            tail=arguments.tail,
            since=arguments.since,
        )
        target.logs(job, options, partial(_write, _prefixes(job, chosen, arguments.rank, options.source)))
    return ExitCode.OK


def _source(arguments: argparse.Namespace) -> LogSource:
    if arguments.gangctl:
        return LogSource.GANGCTL
    return LogSource.SIDECAR if arguments.sidecar else LogSource.WORKER


def _prefixes(job: GangJob, chosen: list[str], its: int | None, source: LogSource) -> dict[str, bytes]:
    """The prefix of each line of a member: its name if there are several, its ranks if one of many is asked for."""
    if len(chosen) > 1:
        return {member: f"{clean(member)} | ".encode() for member in chosen}
    ranks = to_ranges(ranks_of_member(job, chosen[0]))
    if its is None or source is not LogSource.WORKER or str(its) == ranks:
        return {chosen[0]: b""}
    print_err(
        f"note: ranks {ranks} run in the pod of {chosen[0]} and share one log, so the lines of all of them follow; "
        "to tell them apart, let the training print its rank with each line"
    )
    return {chosen[0]: f"{clean(chosen[0])} ranks {ranks} | ".encode()}


def _members(job: GangJob, arguments: argparse.Namespace) -> list[str]:
    if arguments.member is not None:
        if arguments.rank is not None or arguments.role is not None:
            raise UserError("name a member or select one by --rank or --role, not both")
        return [checked_member(job, arguments.member)]
    if arguments.rank is not None:
        return [member_of_rank(job, arguments.rank, arguments.role)]
    return all_members(job) if arguments.role is None else members_of_role(job, arguments.role)


def _write(prefixes: dict[str, bytes], member: str, line: bytes) -> None:
    """Unchanged into a pipe; without control characters on a terminal."""
    prefix = prefixes[member]
    if sys.stdout.isatty():
        print_out(prefix.decode() + output_line(line.decode(errors="replace")))
        return
    sys.stdout.buffer.write(prefix + line + b"\n")
    sys.stdout.buffer.flush()


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} instead of a time such as 90s, 10m, 2h or 1d")
    return int(match[1]) * _UNITS[match[2] or "s"]
