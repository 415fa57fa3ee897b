"""The archive of a supervisor that waits longer before it gives up.

On a busy machine a helper may need seconds for what takes it milliseconds. Tests of what it finds use this archive;
tests of the limits themselves use the real one (``test_limits.py``).
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from gangsidecar import install

AT_MOST_MS = 60_000
STACKS_MS = 25_000
OWN_MS = 5_000
PY_SPY_MS = 5_000
LIMITS: dict[str, dict[str, object]] = {
    "driver.py": {"LAST_REPORT_MS": 30_000, "LAST_OUTPUT_MS": 30_000},
    "machine/stop.py": {"STACKS_MS": STACKS_MS, "OTHERS_MS": 100, "NOTICE_MS": 20_000},
    "progress_watch.py": {"AT_MOST_MS": AT_MOST_MS, "LAST_MS": 30_000},
    "stacks.py": {"OWN_MS": OWN_MS, "SETTLED_MS, BUSY_MS": (500, 1_000), "PY_SPY_MS": PY_SPY_MS, "NATIVE_MS": 15_000},
    "warm_start.py": {"ANSWER_SECONDS": 60.0},
}


def build(destination: Path, of_files: dict[str, dict[str, object]] = LIMITS) -> None:
    """Write it, with these limits in its files."""
    install.build_archive(destination)
    with zipfile.ZipFile(destination) as real:
        files = {name: real.read(name) for name in real.namelist()}
    for name, limits in of_files.items():
        path = f"gangsidecar/supervisor/{name}"
        text = files[path].decode()
        for limit, value in limits.items():
            text, count = re.subn(rf"^{limit} = .*$", f"{limit} = {value}", text, flags=re.MULTILINE)
            assert count == 1, (name, limit)
        files[path] = text.encode()
        del files[f"{path}c"]
    with zipfile.ZipFile(destination, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
