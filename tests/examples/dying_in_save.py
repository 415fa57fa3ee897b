"""Saves checkpoints with ``train.save`` in children, each of which is killed before another line of it.

Usage: python dying_in_save.py DIRECTORY. One line of JSON for each child: the steps that are complete afterwards,
newest first, what they hold, and whether the child was killed.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tests.examples.gang import complete

train: Any = importlib.import_module("train")


def deadly(lines: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that kills this process before so many lines of train.py."""
    left = itertools.count(lines, -1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code.co_filename == train.__file__ and next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def save(directory: Path, step: int) -> None:
    """A checkpoint that holds its step."""
    train.save(directory, step, {"weights": np.full(1000, step, np.float32)})


def main(directory: Path) -> None:
    """Kill ever later, until a child survives."""
    directory.mkdir()
    for step in (1, 2, 3):
        save(directory, step)
    for lines in itertools.count():
        child = os.fork()
        if child == 0:
            sys.settrace(deadly(lines))
            save(directory, 4)
            save(directory, 4)  # over one that is complete, too
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = complete("demo.yaml", directory)
        held = [int(np.load(Path(one.path) / "state.npz")["weights"].sum()) // 1000 for one in found]
        after = {"steps": [one.step for one in found], "held": held, "killed": os.WIFSIGNALED(status)}
        sys.stdout.write(json.dumps(after) + "\n")
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
