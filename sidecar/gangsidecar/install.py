"""Put the supervisor and the framework's client into a folder that a pod's containers share.

Usage: ``python -m gangsidecar.install DIRECTORY``, as a pod's first init container does. It writes ``supervisor.pyz``
and ``client/gangclient.py``, each in one step, so doing it again under a running supervisor does no harm. Whoever the
user's container runs as may read them. Exit codes: 0, 1 if it can't be done, 2 for bad usage.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import bundle

PROGRAM = "supervisor.pyz"
CLIENT = "client/gangclient.py"


def install(directory: Path) -> None:
    """Write both, with what they need above them.

    Raises:
        OSError: something could not be written.
    """
    client = directory / CLIENT
    client.parent.mkdir(parents=True, exist_ok=True)
    client.parent.chmod(0o755)
    bundle.build(directory / PROGRAM)
    temporary = client.with_name(f"{client.name}.{os.getpid()}.tmp")
    temporary.write_bytes((Path(__file__).parent / "client.py").read_bytes())
    temporary.chmod(0o644)
    temporary.replace(client)


def main(arguments: list[str]) -> int:
    """Install into the one folder that is named; the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m gangsidecar.install DIRECTORY\n")
        return 2
    try:
        install(Path(arguments[0]))
    except OSError as error:
        sys.stderr.write(
            f"the supervisor can't be installed in {arguments[0]}: {error}; is the folder there, and may uid "
            f"{os.geteuid()} write to it?\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
