"""The Python interpreters of this machine: gangclient and the supervisor must run on 3.8 or newer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

FIRST_MINOR = 8
LAST_MINOR = 14


@cache
def every() -> dict[int, str]:
    """The minor version of each Python 3 of pyenv's or on the PATH, the lowest first, with its path."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python3.{minor}" for minor in range(LAST_MINOR + 1)]
    paths = [*map(str, pyenv.glob("3.*/bin/python3.*")), *(found for name in names if (found := shutil.which(name)))]
    interpreters = {sys.version_info.minor: sys.executable}
    for path in paths:
        match = re.search(r"/python3\.([0-9]+)$", path)
        if match and int(match[1]) not in interpreters and _runs(path):
            interpreters[int(match[1])] = path
    return dict(sorted(interpreters.items()))


def oldest() -> tuple[int, str]:
    """The oldest interpreter from 3.8 on, as its minor version and its path."""
    return next((minor, path) for minor, path in every().items() if minor >= FIRST_MINOR)


def _runs(path: str) -> bool:
    """A shim of pyenv may stand for no interpreter."""
    return subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0
