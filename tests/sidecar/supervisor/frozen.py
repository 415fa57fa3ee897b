"""The archive of a supervisor that finds only what its executable has: the modules that are frozen into it.

So each test of a supervisor notes a module that the list of them lacks, also one that Python itself imports late, such
as a codec: the archive fails as the executable would.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from functools import cache
from typing import TYPE_CHECKING

from static import freeze

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OF_ARCHIVES = frozenset({"ctypes", "ctypes._endian", "_ctypes"})
"""The executable has ``_gangsys`` instead, and imports none of these."""
IMPORTED = """\
import sys
for name in sys.argv[1:]:
    __import__(name)
print(*sys.modules)
"""
REFUSING = """\
import sys
class _OnlyFrozen:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] != "gangsidecar" and name not in {names!r}:
            raise ModuleNotFoundError("not frozen: " + name)
if sys.version_info[:2] == {version!r}:
    sys.meta_path.insert(0, _OnlyFrozen)
"""


def only(names: Iterable[str], version: tuple[int, int]) -> str:
    """Return code after which an interpreter of this version finds these modules and ours, and no others."""
    return REFUSING.format(names=set(names), version=version)


@cache
def refusing() -> str:
    """Return the code for this interpreter: it finds what the list of frozen modules has and what these import."""
    command = [sys.executable, "-IS", "-c", IMPORTED, *freeze.listed()]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return only({*found, *OF_ARCHIVES}, sys.version_info[:2])


def restrict(archive: Path) -> None:
    """Let the supervisor of this archive find nothing else."""
    with zipfile.ZipFile(archive) as before:
        files = {name: before.read(name) for name in before.namelist()}
    files["__main__.py"] = refusing().encode() + files["__main__.py"]
    with zipfile.ZipFile(archive, "w") as after:
        for name, content in files.items():
            after.writestr(name, content)
