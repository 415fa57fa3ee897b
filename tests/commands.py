"""Run verbs of gangctl as forks of one process that has imported them: a second of imports once, not for each command.

Each is a process of its own with its own arguments, folder, environment and output. What a verb needs of the
interpreter's start (encodings, completion, signals of ``gangctl run``) is tested with commands that are executed.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangctl.cli.main import main
from tests.wait import SECONDS

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.imported"])


def gangctl(
    arguments: Sequence[str], folder: Path, env: Mapping[str, str], name: str = "gangctl"
) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end, as this program in this folder.

    Raises:
        TimeoutError: it has not ended in time, and is killed.
    """
    with tempfile.TemporaryDirectory() as told:
        out, err = Path(told) / "out", Path(told) / "err"
        child = _FORKS.Process(target=_run, args=([name, *arguments], folder, dict(env), out, err))
        child.start()
        child.join(SECONDS)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise TimeoutError(f"{name} {' '.join(arguments)}: not within {SECONDS:g} s")
        return subprocess.CompletedProcess(arguments, child.exitcode, out.read_text(), err.read_text())


def _run(argv: list[str], folder: Path, env: dict[str, str], out: Path, err: Path) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate((Path(os.devnull), out, err)):
        file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(at, mode, closefd=False), write_through=at > 0) for at, mode in enumerate("rww")
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = argv
    sys.exit(main())
