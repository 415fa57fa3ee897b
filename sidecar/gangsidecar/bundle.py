"""Build ``supervisor.pyz``: the supervisor as one file that any Python 3.8 or newer runs.

The same sources give the same bytes. Usage: ``python -m gangsidecar.bundle DESTINATION``.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

MODULES = (
    "__init__",
    "__main__",
    "channel",
    "checkpoints",
    "events",
    "evidence",
    "helpers",
    "launch",
    "leftovers",
    "log",
    "loop",
    "machine",
    "memory",
    "ports",
    "processes",
    "scans",
    "supervisor",
    "wire",
)
ENTRY = """\
import os
import sys

# Isolated (-I: no PYTHONPATH, which is the worker's) and without site packages (-S), which also saves megabytes.
# An image that needs PYTHONHOME to find its Python is left as it is.
if not (sys.flags.isolated and sys.flags.no_site) and sys.executable and "PYTHONHOME" not in os.environ:
    os.execv(sys.executable, [sys.executable, "-IS", *sys.argv])

from gangsidecar.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
SHEBANG = b"#!/usr/bin/env python3\n"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can tell."""


def build(destination: Path) -> None:
    """Write the archive, in one step.

    Raises:
        OSError: it could not be written.
    """
    here = Path(__file__).parent
    files = {"__main__.py": ENTRY.encode()}
    files.update({f"gangsidecar/{name}.py": (here / f"{name}.py").read_bytes() for name in MODULES})
    temporary = destination.with_name(f"{destination.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sorted(files.items()):
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
    temporary.chmod(0o755)
    temporary.replace(destination)


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004
        sys.exit("usage: python -m gangsidecar.bundle DESTINATION")
    build(Path(sys.argv[1]))
