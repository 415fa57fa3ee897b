"""Runs an example of a framework as it is, with a pause after each step, and notes when an attempt made its first one.

    python framework_worker.py [--in-process] EXAMPLE.py [OPTIONS]

It is for bench/frameworks.py. CHECKPOINT_DIR/ATTEMPT-RANK gets the moment, in seconds since the epoch, and
CHECKPOINT_DIR/newest-RANK each step. With ``--in-process`` the example's ``main`` is called by ``gangclient.run``. With
SLOW_SECONDS in the environment, files below CHECKPOINT_DIR are saved and loaded so much more slowly.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import gangclient.pytorch

FOLDER = Path(os.environ["CHECKPOINT_DIR"])
IN_PROCESS = "--in-process"
PAUSE_SECONDS = 0.1
_progress = gangclient.Client.progress


def progress(gang: gangclient.Client, step: int, phase: str = "Step", seconds: float | None = None) -> None:
    """Report it, note it, and wait."""
    _progress(gang, step, phase, seconds)
    note(f"newest-{os.environ['RANK']}", {"step": int(step)})
    first = f"{os.environ['GANG_ATTEMPT']}-{os.environ['RANK']}"
    if not (FOLDER / first).exists():
        note(first, {"step": time.time(), "number": int(step)})
    time.sleep(PAUSE_SECONDS)


def note(name: str, what: dict[str, float]) -> None:
    """Write a file, complete or not at all."""
    half = FOLDER / f"{name}.half"
    half.write_text(json.dumps(what))
    half.rename(FOLDER / name)


def slow_down(seconds: float) -> None:
    """Make the storage of checkpoints slow: each save and each load of PyTorch takes longer."""
    torch: Any = importlib.import_module("torch")
    for name, at in (("save", 1), ("load", 0)):
        setattr(torch, name, functools.partial(slowly, getattr(torch, name), at, seconds))


def slowly(function: Any, at: int, seconds: float, *given: Any, **named: Any) -> Any:
    """Call it, later if the file that it gets is below CHECKPOINT_DIR."""
    if str(getattr(given[at], "name", given[at])).startswith(str(FOLDER)):
        time.sleep(seconds)
    return function(*given, **named)


if __name__ == "__main__":
    gangclient.Client.progress = progress  # type: ignore[method-assign, assignment]
    if "SLOW_SECONDS" in os.environ:
        slow_down(float(os.environ["SLOW_SECONDS"]))
    goes_on = IN_PROCESS in sys.argv
    sys.argv = [word for word in sys.argv[1:] if word != IN_PROCESS]
    if goes_on:
        main = runpy.run_path(sys.argv[0], run_name="example")["main"]
        gangclient.run(lambda _gang: main(), finalize=gangclient.pytorch.leave)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
