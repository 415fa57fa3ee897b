"""Put the supervisor and gangclient together in a folder, and build ``supervisor.pyz``: the supervisor as one file.

Usage: ``python -m gangsidecar.install DIRECTORY [EXECUTABLE]``. It writes ``supervisor.pyz``, ``client/gangclient/``,
``hook/`` and EXECUTABLE, as ``supervisor``: the static one. The build of the sidecar's image makes the folder, and
``supervisor install`` copies it into a pod. Local mode makes one in its state directory. Each file is written in one
step, so it may run again under a running supervisor. Every user may read them. Exit codes: 0, 1 if it can't be done,
2 for bad usage.

Local mode runs the archive. On a cluster the same sources are a static executable (sidecar/static), and the worker's
own interpreter finds in the archive what starts a forked worker. It has each module compiled, too, since an archive's
modules would be compiled at each start: an interpreter of another version takes the source. The same sources at the
same place give the same bytes.
"""

from __future__ import annotations

import marshal
import os
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path

from gangsidecar.supervisor.__main__ import FOLDER_MODE, copy_file, failure
from gangsidecar.wire import CLIENT_FOLDER, HOOK_FOLDER, SUPERVISOR_ARCHIVE, SUPERVISOR_PROGRAM

CLIENT = "gangclient"
CONTENT = ("__init__.py", "common.py", "start/**/*.py", "supervisor/**/*.py", "wire/*.py")
"""Files of this package. They import nothing but each other and the standard library."""
HOOK = ("sitecustomize.py", "gang_handover.py")
"""What interpreters below a worker's command find first in PYTHONPATH."""
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


PACKAGE = Path(__file__).parent
UNCHECKED_HASH = (0b01).to_bytes(4, "little")
"""The flags of a compiled module that is taken without a look at its source. Source: PEP 552."""


def sources() -> dict[str, bytes]:
    """All that is in it but what starts it, by its path."""
    paths = [path for pattern in CONTENT for path in PACKAGE.glob(pattern)]
    return {str(path.relative_to(PACKAGE.parent)): path.read_bytes() for path in paths}


def compiled(name: str, source: bytes) -> bytes:
    """A module as a ``.pyc`` file has it, in the version of marshal whose bytes are the same for the same code."""
    code = SourceFileLoader(name, str(PACKAGE.parent / name)).get_code(name)
    return MAGIC_NUMBER + UNCHECKED_HASH + source_hash(source) + marshal.dumps(code, 2)


def build_archive(destination: Path) -> None:
    """Write the archive, in one step. OSError: it could not be written."""
    modules = sources()
    files = {**modules, "__main__.py": ENTRY.encode()}
    files |= {f"{name}c": compiled(name, source) for name, source in modules.items()}
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


def write_hook(directory: Path) -> None:
    """Write the folder that comes first in a worker's PYTHONPATH. OSError: it could not be written."""
    source, target = Path(__file__).parent / "start" / HOOK_FOLDER, directory / HOOK_FOLDER
    target.mkdir(exist_ok=True)
    target.chmod(FOLDER_MODE)
    for name in HOOK:
        copy_file(str(source / name), str(target / name), mode=0o644)


USAGE = "usage: python -m gangsidecar.install DIRECTORY [EXECUTABLE]\n"


def install(directory: Path, executable: Path | None = None) -> None:
    """Write them, with the folders that they need. OSError: something could not be written."""
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
        copy_file(str(path), str(target), mode=0o644)
    write_hook(directory)
    build_archive(directory / SUPERVISOR_ARCHIVE)
    if executable is not None:
        copy_file(str(executable), str(directory / SUPERVISOR_PROGRAM), mode=0o755)


def main(arguments: list[str]) -> int:
    """Install into the given folder; returns the exit code."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):  # noqa: PLR2004
        sys.stderr.write(USAGE)
        return 2
    try:
        install(*map(Path, arguments))
    except OSError as error:
        sys.stderr.write(failure(arguments[0], error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
