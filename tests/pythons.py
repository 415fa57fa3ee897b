"""The Python interpreters of this machine that gangclient and the supervisor must run on: 3.8 or newer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

FIRST_MINOR = 8


@cache
def oldest() -> tuple[int, str]:
    """The oldest interpreter from 3.8 on, as its minor version and its path; it is on the PATH or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python3.{minor}" for minor in range(FIRST_MINOR, sys.version_info.minor)]
    paths = [*(found for name in names if (found := shutil.which(name))), *map(str, pyenv.glob("3.*/bin/python3.*"))]
    minors = {(int(match[1]), path) for path in paths if (match := re.search(r"/python3\.([0-9]+)$", path))}
    for minor, path in sorted(minors):
        if minor >= FIRST_MINOR and _runs(path):
            return minor, path
    return sys.version_info.minor, sys.executable


def _runs(path: str) -> bool:
    """A shim of pyenv may stand for no interpreter."""
    return subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0
