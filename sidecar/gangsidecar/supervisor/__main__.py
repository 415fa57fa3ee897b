"""The supervisor's program: ``run`` supervises a worker, ``install`` copies the program into a pod.

``install DIRECTORY`` copies this program, and all that lies beside it, into the folder that a pod's containers share.
The sidecar's postStart hook runs it, and no other container of the pod starts before it is done. So it must take
milliseconds: only other verbs import the supervisor. Each file is written in one step, and every user may read it,
whatever uid the user's container has. What must never happen: that a program which starts a copy sees half of it, or
that one which runs from an older copy stops.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

FOLDER_MODE = 0o755
COPY_BYTES = 1 << 30
"""The bytes that one call may copy; the kernel stops at the end of the file."""
USAGE = """\
usage: supervisor run FLAGS -- COMMAND [ARGUMENT ...]
       supervisor install DIRECTORY
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    match list(arguments):
        case ["install", directory] if not directory.startswith("-"):
            return _install(directory)
        case ["-h" | "--help", *_] | [_, "-h" | "--help", *_]:
            from gangsidecar.supervisor.settings import help_text  # noqa: PLC0415 - see above

            sys.stdout.write(USAGE + help_text())
            return 0
        case ["run", *rest]:
            return _run(rest)
        case ["install", *_]:
            return _misused("install takes one directory")
        case [verb, *_] if verb:
            return _misused(f"{verb!r} is neither run nor install")
        case _:
            return _misused("expected run or install")


def _run(arguments: list[str]) -> int:
    from gangsidecar.common import log_as  # noqa: PLC0415 - see above
    from gangsidecar.supervisor import kernel, settings  # noqa: PLC0415
    from gangsidecar.supervisor.driver import Driver  # noqa: PLC0415
    from gangsidecar.wire import SUPERVISOR_LOG_NAME  # noqa: PLC0415

    try:
        given = settings.parse_settings(arguments)
    except settings.UsageError as error:
        return _misused(str(error))
    log_as(SUPERVISOR_LOG_NAME, given.log)
    for variable in settings.VARIABLES:  # They are this program's, not the worker's.
        os.environ.pop(variable, None)
    kernel.trim_memory()
    return Driver(given).run()


def _install(directory: str) -> int:
    try:
        install_folder(os.path.dirname(os.path.abspath(sys.argv[0])), directory)
    except OSError as error:
        sys.stderr.write(failure(directory, error))
        return 1
    return 0


def _misused(problem: str) -> int:
    sys.stderr.write(f"supervisor: {problem}\n{USAGE}Try --help.\n")
    return 2


def install_folder(source: str, directory: str) -> None:
    """Copy what is in the folder ``source`` into ``directory``, which must exist. OSError: it can't be written."""
    for folder, _, names in os.walk(source, onerror=_refuse):
        target = os.path.normpath(os.path.join(directory, os.path.relpath(folder, source)))
        if folder != source:
            os.makedirs(target, exist_ok=True)
            os.chmod(target, FOLDER_MODE)
        for name in names:
            path = os.path.join(folder, name)
            copy_file(path, os.path.join(target, name), mode=0o755 if os.access(path, os.X_OK) else 0o644)


def copy_file(source: str, target: str, *, mode: int) -> None:
    """Copy one file, in one step. OSError: it can't be written."""
    temporary = f"{target}.{os.getpid()}.tmp"
    with open(source, "rb") as whole, open(temporary, "wb") as half:
        while os.sendfile(half.fileno(), whole.fileno(), None, COPY_BYTES):
            pass
    os.chmod(temporary, mode)
    os.replace(temporary, target)


def _refuse(error: OSError) -> None:
    raise error


def failure(directory: str, error: OSError) -> str:
    """Say why ``directory`` could not be written, and what to look at."""
    return (
        f"the supervisor can't be installed in {directory}: {error}; does the folder exist, and may uid "
        f"{os.geteuid()} write to it?\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
