"""One process of a Run: its environment, its command with ``$(VAR)`` expanded, and how it ended.

To the environment belong folders for what compilers keep. They live as long as the pod: a restart need not compile
again. A variable that the user has set stays as it is, wherever it was set: in the template, by ``envFrom``, in the
image, or in a shell. A compiler runs what it finds in its cache. So the folder must belong to this user, and no other
user may enter it; otherwise nothing is set.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Sequence
from typing import NamedTuple

from gangsidecar import wire
from gangsidecar.common import log
from gangsidecar.supervisor import kernel, processes
from gangsidecar.supervisor.machine import Exited
from gangsidecar.supervisor.persistence import remove

ARCHIVE = (
    os.path.join(os.path.dirname(os.path.abspath(sys.executable)), wire.SUPERVISOR_ARCHIVE)
    if kernel.IS_STATIC
    else os.path.dirname(os.path.dirname(os.path.abspath(wire.__path__[0])))
)
"""The place where the user's interpreter finds what of gangctl it runs: the archive beside the static executable, or
the file (in a checkout the folder) from which this program runs."""
NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""As in shells."""
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_FOLDERS = {
    wire.Compiler.CUDA: "CUDA_CACHE_PATH",
    wire.Compiler.INDUCTOR: "TORCHINDUCTOR_CACHE_DIR",
    wire.Compiler.JAX: "JAX_COMPILATION_CACHE_DIR",
    wire.Compiler.TRITON: "TRITON_CACHE_DIR",
}
"""Compiler -> the variable with the folder of its cache."""
_MORE = {
    wire.Compiler.JAX: {
        # JAX keeps only what took a second to compile, but a restart compiles hundreds of small functions.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
}
"""Variables that are also set, if the folder is ours."""


class MainProcess(NamedTuple):
    """A process that runs, with what is needed to interpret its end."""

    local_rank: int
    error_file: str
    oom_kills: int


def expand(text: str, environment: dict[str, str]) -> str:
    """Expand as the kubelet does: ``$(NAME)``, and ``$$`` for one ``$``. An unknown name stays as it is."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else environment.get(name, match.group(0))

    return _REFERENCE.sub(value, text)


def worker_env(base: dict[str, str], process: wire.Process, pod: str, client: str, hook: str) -> dict[str, str]:
    """The supervisor's own environment, the process's on top, and the mark.

    In PYTHONPATH the hook for warm starts comes first and the client's folder last, where there are such.
    """
    merged = {**base, **dict(process.env), "GANG_POD_UID": pod, processes.MARK: "1"}
    if hook or client:
        merged["PYTHONPATH"] = os.pathsep.join(filter(None, (hook, merged.get("PYTHONPATH", ""), client)))
    return merged


def write_hosts(path: str, lines: Sequence[str]) -> None:
    """Replace the host file in one step, or delete it if there are no lines.

    OSError: it could not be written. What an earlier attempt wrote may still be there.
    """
    if not lines:
        remove(path)
        return
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8", errors="replace") as file:
        file.write("".join(line + "\n" for line in lines))
    os.replace(temporary, path)


def main_process(env: dict[str, str], local_rank: int) -> MainProcess:
    """The process that begins an attempt with this environment."""
    error_file = env.get(ERROR_FILE, "")
    if error_file:
        remove(error_file)
    return MainProcess(local_rank, error_file, kernel.oom_kills())


def expand_command(command: Sequence[str], env: dict[str, str]) -> list[str]:
    return [expand(part, env) for part in command]


def not_executed(command: str, local_rank: int, error: Exception) -> Exited:
    """The end of a process that could not be executed, with a shell's exit codes."""
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Exited(local_rank, exit_code=NOT_FOUND if missing else NOT_EXECUTABLE, message=f"{command}: {reason}")


def exit_of(started: MainProcess, status: int) -> Exited:
    """The end of a process that was reaped with this wait status."""
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        oom = signum == signal.SIGKILL and kernel.oom_kills() > started.oom_kills
        return Exited(started.local_rank, signal=signum, oom=oom)
    code = os.WEXITSTATUS(status)
    if started.error_file and code == 1:
        return _child_of_torchrun(started)
    return Exited(started.local_rank, exit_code=code)


def without_one_oom_kill(started: MainProcess) -> MainProcess:
    """The same process, after the kernel has killed another of this cgroup, maybe for lack of memory."""
    return started._replace(oom_kills=min(started.oom_kills + 1, kernel.oom_kills()))


def _child_of_torchrun(started: MainProcess) -> Exited:
    """The end of torchrun's child, as torchrun's error file has it; torchrun itself always exits with 1.

    torch/distributed/elastic/multiprocessing/errors/error_handler.py: the child writes ``{"message": {"message",
    "extraInfo"}}``; torchrun copies the first one to its own file with ``errorCode``, negative for a signal.
    """
    try:
        with open(started.error_file, "rb") as file:
            error = json.loads(file.read(wire.MAX_BYTES))["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Exited(started.local_rank, exit_code=1, hidden=True)
    if not isinstance(error, dict):
        return Exited(started.local_rank, exit_code=1, hidden=True, message=str(error))
    message, code = str(error.get("message", "")), error.get("errorCode")
    if type(code) is not int or not -64 <= code <= 255 or code == 0:  # noqa: PLR2004 - signals and exit codes
        return Exited(started.local_rank, exit_code=1, hidden=True, message=message)
    if code < 0:
        return Exited(started.local_rank, signal=-code, message=message)
    return Exited(started.local_rank, exit_code=code, message=message)


def cache_variables(folder: str, compilers: Sequence[wire.Compiler], given: dict[str, str]) -> dict[str, str]:
    """The variables to add to the environment ``given`` for the caches of these compilers."""
    own_caches = [one for one in compilers if _FOLDERS[one] not in given]
    added: dict[str, str] = {}
    try:
        for one in own_caches:
            path = os.path.join(folder, one.value.lower())
            _own(folder)
            _own(path)
            added.update({_FOLDERS[one]: path, **_MORE.get(one, {})})
    except OSError as error:
        log("warning", "what compilers make is not kept for a restart", folder=folder, reason=error)
        return {}
    return {name: value for name, value in added.items() if name not in given}


def _own(path: str) -> None:
    """Make the folder, or take one of an earlier session. OSError: there is none that is this user's alone."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{path} must be a folder that only user {os.geteuid()} may enter")
