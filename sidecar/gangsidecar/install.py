"""Put the supervisor and gangclient into a folder that a pod's containers share.

Usage: ``python -m gangsidecar.install DIRECTORY``, as the sidecar's postStart hook does. It writes ``supervisor.pyz``
and ``client/gangclient/``, each file in one step, so running it again under a running supervisor does no harm. Every
user may read them, whatever uid the user's container has. Exit codes: 0, 1 if it can't be done, 2 for bad usage.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from gangsidecar import bundle
from gangsidecar.wire import CLIENT_FOLDER, SUPERVISOR_PROGRAM

CLIENT = "gangclient"


def install(directory: Path) -> None:
    """Write both, with the folders that they need.

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
        _write(package / path.name, path.read_bytes())
    bundle.build(directory / SUPERVISOR_PROGRAM)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.chmod(0o644)
    temporary.replace(path)


def main(arguments: list[str]) -> int:
    """Install into the given folder; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m gangsidecar.install DIRECTORY\n")
        return 2
    try:
        install(Path(arguments[0]))
    except OSError as error:
        sys.stderr.write(
            f"the supervisor can't be installed in {arguments[0]}: {error}; does the folder exist, and may uid "
            f"{os.geteuid()} write to it?\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
