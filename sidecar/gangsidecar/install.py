"""Put the supervisor and gangclient together in a folder.

Usage: ``python -m gangsidecar.install DIRECTORY [EXECUTABLE]``. It writes ``supervisor.pyz``, ``client/gangclient/``
and EXECUTABLE, as ``supervisor``: the static one. The build of the sidecar's image makes the folder, and ``supervisor
install`` copies it into a pod. Local mode makes one in its state directory. Each file is written in one step, so it may
run again under a running supervisor. Every user may read them. Exit codes: 0, 1 if it can't be done, 2 for bad usage.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from gangsidecar import bundle
from gangsidecar.supervisor.installation import FOLDER_MODE, copy, told
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
    for path in sorted(source.rglob("*.py")):
        target = package / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in (package.parent, package, target.parent):
            folder.chmod(FOLDER_MODE)
        copy(str(path), str(target), mode=0o644)
    bundle.build(directory / SUPERVISOR_ARCHIVE)
    if executable is not None:
        copy(str(executable), str(directory / SUPERVISOR_PROGRAM), mode=0o755)


def main(arguments: list[str]) -> int:
    """Install into the given folder; returns the exit code."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):  # noqa: PLR2004
        sys.stderr.write(USAGE)
        return 2
    try:
        install(*map(Path, arguments))
    except OSError as error:
        sys.stderr.write(told(arguments[0], error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
