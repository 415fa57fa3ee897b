"""The settings of a supervisor, by flags or variables.

It is parsed without argparse, which takes more memory than all of our own code.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gangsidecar.supervisor.machine import PodIdentity
from gangsidecar.wire import CACHES_FOLDER, CACHES_VARIABLE, CLIENT_FOLDER, HOOK_FOLDER, PRELOAD_VARIABLE, Compiler
from gangsidecar.wire.frozen import frozen


class UsageError(Exception):
    """The command line is wrong; the text is a sentence for the user."""


@frozen
class SupervisorSettings:
    """The settings that the pod gives its supervisor."""

    identity: PodIdentity
    command: tuple[str, ...]
    socket: str
    """The unix socket on which the sidecar listens."""
    state: str
    """The file that outlives this process."""
    termination_log: str
    """The file that becomes the termination message of the container."""
    log: str = ""
    """The file for the supervisor's own lines. Empty: they go to the log of the worker."""
    client: str = ""
    """The folder that holds ``gangclient``, for the worker's PYTHONPATH."""
    hook: str = ""
    """The folder whose ``sitecustomize`` asks for a warm start, for the same; it is beside ``client``."""
    preload: str = ""
    """``Auto``, or the modules that a template preloads, to start workers as its forks. Empty: they are executed."""
    caches: str = ""
    """The folder for what compilers keep."""
    compilers: tuple[Compiler, ...] = ()
    """Those whose caches are in it, unless the user has set another place."""
    orphan_ms: int = 600_000


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
VARIABLES = tuple(flag.variable for flag in _FLAGS.values())
_BESIDE = {"--termination-log": "termination-log", "--client-dir": CLIENT_FOLDER, "--caches-dir": CACHES_FOLDER}
"""Flag -> what it is by default, in the folder of the state file."""
_HELP = """
run: supervise the worker of one member of a gang. This is the entry point of the user's container. It starts the
command when the gang's controller directs it, stops the whole process tree when another attempt begins, and reports how
it ended. $(VAR) in the command and its arguments is expanded at each attempt, from the environment of that attempt.

install: copy the folder in which this program lies into DIRECTORY, each file in one step.

Each flag of run takes a value (--flag VALUE or --flag=VALUE). The environment variable can set it instead:

{flags}

Example, without a cluster:

  supervisor run --socket /run/gang/supervisor.sock --state /run/gang/state.json \\
      --gang 8c1d --member worker-0 --pod 77ab --address 127.0.0.1 -- python3 train.py --rank '$(RANK)'

Exit code: 0 when the gang no longer needs this pod (the report says how the worker ended), 2 for bad usage.
"""


def help_text() -> str:
    """Describe the verbs and the flags, with their variables and defaults."""
    lines = []
    for name, flag in _FLAGS.items():
        default = f" (default {flag.default})" if flag.default else ""
        lines.append(f"  {name:<17} {flag.variable:<23} {flag.meaning}{default}")
    return _HELP.format(flags="\n".join(lines))


def parse_settings(arguments: list[str]) -> SupervisorSettings:
    """Read what follows ``run``, and the environment. UsageError: something is missing, unknown or wrong."""
    given, command = _parsed(arguments)
    if missing := [f"{name} (or {_FLAGS[name].variable})" for name in _FLAGS if not given[name]]:
        raise UsageError(f"missing: {', '.join(missing)}")
    if not command:
        raise UsageError("no command: put it after `--`, as in `run ... -- python3 train.py`")
    folder = os.path.dirname(os.path.abspath(given["--state"]))
    is_set = {name: given[name] != flag.default for name, flag in _FLAGS.items()}
    path = {name: given[name] if is_set[name] else os.path.join(folder, _BESIDE[name]) for name in _BESIDE}
    hook = os.path.join(os.path.dirname(os.path.abspath(path["--client-dir"])), HOOK_FOLDER)
    return SupervisorSettings(
        identity=PodIdentity(
            given["--gang"], given["--member"], _natural(given, "--incarnation"), given["--pod"], given["--address"]
        ),
        command=tuple(command),
        socket=given["--socket"],
        state=given["--state"],
        termination_log=path["--termination-log"],
        client=path["--client-dir"] if os.path.isdir(path["--client-dir"]) else "",
        hook=hook if os.path.isdir(hook) else "",
        log=os.path.abspath(given["--log"]) if is_set["--log"] else "",
        preload=given["--preload"] if is_set["--preload"] else "",
        caches=path["--caches-dir"],
        compilers=_compilers(given["--caches"]) if is_set["--caches"] else (),
        orphan_ms=1000 * _natural(given, "--orphan-seconds"),
    )


def _parsed(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return every flag's value, and what follows ``--``."""
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


def _compilers(names: str) -> tuple[Compiler, ...]:
    try:
        return tuple(Compiler(name) for name in names.split(","))
    except ValueError:
        known = ",".join(one.value for one in Compiler)
        raise UsageError(f"--caches: {names!r} instead of some of {known}") from None


def _natural(given: dict[str, str], name: str) -> int:
    if not (given[name].isascii() and given[name].isdigit()):
        raise UsageError(f"{name}: {given[name]!r} is not a whole number from 0 on")
    return int(given[name])
