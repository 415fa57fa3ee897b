"""Build ``supervisor.pyz``: the supervisor as one file.

Local mode runs it. On a cluster the same sources are a static executable (sidecar/static), and the worker's own
interpreter finds in the archive what starts a forked worker. The same sources give the same bytes.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

FOLDERS = ("common", "start", "supervisor", "wire")
"""All that is in it. No file of these folders imports anything but these folders and the standard library."""
ENTRY = """\
import os
import sys

# Isolated (-I: no PYTHONPATH, which is the worker's) and without site packages (-S), which also saves megabytes.
# An image that needs PYTHONHOME to find its Python is left as it is.
if not (sys.flags.isolated and sys.flags.no_site) and sys.executable and "PYTHONHOME" not in os.environ:
    os.execv(sys.executable, [sys.executable, "-IS", *sys.argv])

from gangsidecar.supervisor.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
SHEBANG = b"#!/usr/bin/env python3\n"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold."""


def sources() -> dict[str, bytes]:
    """All that is in it but what starts it, by its path."""
    here = Path(__file__).parent
    paths = [here / "__init__.py", *(path for folder in FOLDERS for path in (here / folder).rglob("*.py"))]
    return {str(path.relative_to(here.parent)): path.read_bytes() for path in paths}


def build(destination: Path) -> None:
    """Write the archive, in one step.

    Raises:
        OSError: it could not be written.
    """
    files = {**sources(), "__main__.py": ENTRY.encode()}
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
