"""The command line of the supervisor. It does without argparse, which takes more memory than all of our own code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from gangsidecar.common.log import log_as
from gangsidecar.supervisor import kernel
from gangsidecar.supervisor.driver import Driver
from gangsidecar.supervisor.machine import Identity
from gangsidecar.supervisor.settings import SupervisorSettings
from gangsidecar.wire import (
    CACHES_FOLDER,
    CACHES_VARIABLE,
    CLIENT_FOLDER,
    PRELOAD_VARIABLE,
    SUPERVISOR_LOG_NAME,
    Compiler,
)


class _Flag(NamedTuple):
    variable: str
    default: str
    """Empty = the flag is required."""
    meaning: str


_FLAGS = {
    "--socket": _Flag("GANG_SUPERVISOR_SOCKET", "", "unix socket on which the sidecar listens"),
    "--state": _Flag("GANG_STATE", "", "file that keeps ends and checkpoints for the next start"),
    "--gang": _Flag("GANG_UID", "", "UID of the GangJob"),
    "--member": _Flag("GANG_MEMBER", "", "the member's name, such as worker-3"),
    "--incarnation": _Flag("GANG_INCARNATION", "0", "how many times the member's pod was replaced"),
    "--pod": _Flag("GANG_POD_UID", "", "UID of the pod"),
    "--address": _Flag("GANG_POD_IP", "", "address at which peers reach this pod"),
    "--orphan-seconds": _Flag("GANG_ORPHAN_SECONDS", "600", "end after so long without controller and live worker"),
    "--termination-log": _Flag("GANG_TERMINATION_LOG", "termination-log beside --state", "file for the last words"),
    "--log": _Flag("GANG_SUPERVISOR_LOG", "stderr", "file for the supervisor's own lines, not the worker's"),
    "--preload": _Flag(PRELOAD_VARIABLE, "nothing", "Auto or modules, a comma between: fork workers from a template"),
    "--caches": _Flag(CACHES_VARIABLE, "nothing", "compilers whose caches are kept, a comma between: CUDA,JAX"),
    "--caches-dir": _Flag("GANG_CACHES_DIR", "caches beside --state", "folder for these caches"),
    "--client-dir": _Flag("GANG_CLIENT_DIR", "client beside --state", "folder with gangclient, for PYTHONPATH"),
}

USAGE = """\
usage: supervisor run FLAGS -- COMMAND [ARGUMENT ...]
       supervisor install DIRECTORY
"""
HELP = f"""\
{USAGE}
run: supervise the worker of one member of a gang. This is the entry point of the user's container. It starts the
command when the gang's controller directs it, stops the whole process tree when another attempt begins, and reports how
it ended. $(VAR) in the command and its arguments is expanded at each attempt, from the environment of that attempt.

install: copy the folder in which this program lies into DIRECTORY, each file in one step.

Each flag of run takes a value (--flag VALUE or --flag=VALUE). The environment variable can set it instead:

{{flags}}

Example, without a cluster:

  supervisor run --socket /run/gang/supervisor.sock --state /run/gang/state.json \\
      --gang 8c1d --member worker-0 --pod 77ab --address 127.0.0.1 -- python3 train.py --rank '$(RANK)'

Exit code: 0 when the gang no longer needs this pod (the report tells how the worker ended), 2 for bad usage.
"""


class UsageError(Exception):
    """The command line is wrong; the text is a sentence for the user."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    verb, rest = (arguments[0], list(arguments[1:])) if arguments else ("", [])
    if verb in {"-h", "--help"} or (rest and rest[0] in {"-h", "--help"}):
        sys.stdout.write(_help())
        return 0
    try:
        return _dispatch(verb, rest)
    except UsageError as error:
        sys.stderr.write(f"supervisor: {error}\n{USAGE}Try --help.\n")
        return 2


def _dispatch(verb: str, rest: list[str]) -> int:
    if verb == "install":
        raise UsageError("install takes one directory")
    if verb != "run":
        raise UsageError(f"{verb!r} is neither run nor install" if verb else "expected run or install")
    settings = _settings(rest)
    log_as(SUPERVISOR_LOG_NAME, settings.log)
    for flag in _FLAGS.values():  # They are this program's, not the worker's.
        os.environ.pop(flag.variable, None)
    kernel.trim_memory()
    return Driver(settings).run()


def _help() -> str:
    lines = []
    for name, flag in _FLAGS.items():
        default = f" (default {flag.default})" if flag.default else ""
        lines.append(f"  {name:<17} {flag.variable:<23} {flag.meaning}{default}")
    return HELP.format(flags="\n".join(lines))


def _settings(arguments: list[str]) -> SupervisorSettings:
    given, command = _parse(arguments)
    missing = [f"{name} (or {_FLAGS[name].variable})" for name in _FLAGS if not given[name]]
    if missing:
        raise UsageError(f"missing: {', '.join(missing)}")
    if not command:
        raise UsageError("no command: put it after `--`, as in `run ... -- python3 train.py`")
    folder = os.path.dirname(os.path.abspath(given["--state"]))
    words = given["--termination-log"]
    if words == _FLAGS["--termination-log"].default:
        words = os.path.join(folder, "termination-log")
    client = given["--client-dir"]
    if client == _FLAGS["--client-dir"].default:
        client = os.path.join(folder, CLIENT_FOLDER)
    caches = given["--caches-dir"]
    if caches == _FLAGS["--caches-dir"].default:
        caches = os.path.join(folder, CACHES_FOLDER)
    identity = Identity(
        given["--gang"], given["--member"], _natural(given, "--incarnation"), given["--pod"], given["--address"]
    )
    return SupervisorSettings(
        identity=identity,
        command=tuple(command),
        socket=given["--socket"],
        state=given["--state"],
        termination_log=words,
        client=client if os.path.isdir(client) else "",
        log="" if given["--log"] == _FLAGS["--log"].default else os.path.abspath(given["--log"]),
        preload="" if given["--preload"] == _FLAGS["--preload"].default else given["--preload"],
        caches=caches,
        compilers=_compilers(given["--caches"]),
        orphan_ms=1000 * _natural(given, "--orphan-seconds"),
    )


def _compilers(names: str) -> tuple[Compiler, ...]:
    if names == _FLAGS["--caches"].default:
        return ()
    try:
        return tuple(Compiler(name) for name in names.split(","))
    except ValueError:
        known = ",".join(one.value for one in Compiler)
        raise UsageError(f"--caches: {names!r} instead of some of {known}") from None


def _parse(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Every flag's value, and what follows ``--``."""
    given = {name: os.environ.get(flag.variable) or flag.default for name, flag in _FLAGS.items()}
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            return given, list(waiting)
        name, equals, value = argument.partition("=")
        if name not in _FLAGS:
            raise UsageError(f"unknown flag {argument!r}; the worker's command follows `--`")
        given[name] = value if equals else next(waiting, "")
    return given, []


def _natural(given: dict[str, str], name: str) -> int:
    if not (given[name].isascii() and given[name].isdigit()):
        raise UsageError(f"{name}: {given[name]!r} is not a whole number from 0 on")
    return int(given[name])
