"""Put the supervisor and gangclient into a folder that a pod's containers share.

Usage: ``python -m gangsidecar.install DIRECTORY [EXECUTABLE]``. It writes ``supervisor.pyz``, ``client/gangclient/``
and EXECUTABLE, as ``supervisor``: the static one, which the sidecar's postStart hook names. Each file is written in one
step, so running it again under a running supervisor does no harm. Every user may read them, whatever uid the user's
container has. Exit codes: 0, 1 if it can't be done, 2 for bad usage.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from gangsidecar import bundle
from gangsidecar.wire import CLIENT_FOLDER, SUPERVISOR_ARCHIVE, SUPERVISOR_PROGRAM

CLIENT = "gangclient"


USAGE = "usage: python -m gangsidecar.install DIRECTORY [EXECUTABLE]\n"


def install(directory: Path, executable: Path | None = None) -> None:
    """Write them, with the folders that they need.

    Raises:
        OSError: something could not be written.
    """
    found = find_spec(CLIENT)  # Importing it would take longer than all the rest.
    if found is None or found.origin is None:
        raise FileNotFoundError(f"there is no {CLIENT} beside this program")
    source = Path(found.origin).parent
    package = directory / CLIENT_FOLDER / source.name
    package.mkdir(parents=True, exist_ok=True)
    for folder in (package.parent, package):
        folder.chmod(0o755)
    for path in sorted(source.glob("*.py")):
        _copy(path, package / path.name, 0o644)
    bundle.build(directory / SUPERVISOR_ARCHIVE)
    if executable is not None:
        _copy(executable, directory / SUPERVISOR_PROGRAM, 0o755)


def _copy(source: Path, target: Path, mode: int) -> None:
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.copyfile(source, temporary)
    temporary.chmod(mode)
    temporary.replace(target)


def main(arguments: list[str]) -> int:
    """Install into the given folder; returns the exit code."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):  # noqa: PLR2004
        sys.stderr.write(USAGE)
        return 2
    try:
        install(*map(Path, arguments))
    except OSError as error:
        sys.stderr.write(
            f"the supervisor can't be installed in {arguments[0]}: {error}; does the folder exist, and may uid "
            f"{os.geteuid()} write to it?\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
