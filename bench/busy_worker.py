"""The worker of bench/template.py: it makes steps of matrix products without end, and notes how long each one took.

    python busy_worker.py FOLDER [MODULE ...]

It reports its first step when FOLDER/go-ATTEMPT is there.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gangclient


def train() -> None:
    """Make steps."""
    folder, *modules = sys.argv[1:]
    for name in modules:
        importlib.import_module(name)
    numpy: Any = importlib.import_module("numpy")
    gang = gangclient.connect()
    attempt, rank = os.environ["GANG_ATTEMPT"], os.environ["RANK"]
    a = numpy.ones((300, 300))
    trains, told = Path(folder, f"{attempt}-{rank}"), False
    trains.with_suffix(".tmp").write_text(json.dumps({"step": time.time()}))
    with Path(folder, f"steps-{attempt}-{rank}").open("w", buffering=1) as steps:
        trains.with_suffix(".tmp").rename(trains)
        while True:
            began = time.perf_counter()
            a = a @ a
            a /= a.max()
            steps.write(f"{time.time()} {time.perf_counter() - began}\n")
            if not told and Path(folder, f"go-{attempt}").exists():
                gang.progress(1)
                told = True


if __name__ == "__main__":
    train()
