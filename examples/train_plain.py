"""The smallest restartable job: one file, the standard library only, no gangclient.

    gangctl run examples/plain.yaml
    python3 examples/train_plain.py           # alone; press Ctrl-C and start it again: it goes on

It fits a line to noisy points. All it takes from gangctl is in the environment, and all that gangctl takes from it is
a directory with checkpoints and the exit code. ``train.py`` is the same with a real model, collectives and gangclient.
"""

import json
import os
import random
import shutil
import time
from pathlib import Path

STEPS, SAVE_EVERY, KEPT = int(os.environ.get("STEPS", "300")), 20, 3
RANK = int(os.environ.get("RANK", "0"))
DIRECTORY = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))


def begin() -> tuple[int, float, float]:
    """Step, slope and offset to go on from: where gangctl says, so that no two ranks begin at different steps."""
    folder = Path(os.environ["GANG_RESTORE_PATH"]) if "GANG_RESTORE_PATH" in os.environ else None
    if "GANG_ATTEMPT" not in os.environ:  # alone, without gangctl: the newest complete one
        complete = sorted(DIRECTORY.glob("step-*/DONE"), key=step_of)
        folder = complete[-1].parent if complete else None
    if folder is None:
        return 0, 0.0, 0.0
    state = json.loads((folder / "state.json").read_text())
    return state["step"], state["slope"], state["offset"]


def save(step: int, slope: float, offset: float) -> None:
    """Data first, then DONE, each on the disk before the next: whoever dies in between leaves no checkpoint."""
    folder = DIRECTORY / f"step-{step}"
    drop(folder)
    folder.mkdir(parents=True)
    state = {"step": step, "slope": slope, "offset": offset}  # JSON writes a float so that it reads the same
    for name, content in (("state.json", json.dumps(state)), ("DONE", "")):
        with (folder / name).open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    for place in (folder, DIRECTORY):  # the names as well
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    for done in sorted(DIRECTORY.glob("step-*/DONE"), key=step_of)[:-KEPT]:
        drop(done.parent)


def drop(folder: Path) -> None:
    """Delete a checkpoint, or what somebody who died has left of one: the mark first."""
    (folder / "DONE").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def step_of(done: Path) -> int:
    """The number in the name of the folder that this mark lies in."""
    return int(done.parent.name.removeprefix("step-"))


def main() -> None:
    """Train. There is nothing to do about SIGTERM: that it ends the process is what a restart wants."""
    step, slope, offset = begin()
    print(f"rank {RANK}: begins after step {step}", flush=True)
    while step < STEPS:
        step += 1
        chance = random.Random(step)  # noqa: S311 - the points depend on the step alone, so a replayed step is the same
        for _ in range(100):
            x = chance.uniform(-1, 1)
            error = slope * x + offset - (3 * x + 2 + chance.gauss(0, 0.1))
            slope, offset = slope - 0.01 * error * x, offset - 0.01 * error
        time.sleep(0.05)  # else it would be over before anybody could kill it
        if RANK == 0 and step % SAVE_EVERY == 0:
            save(step, slope, offset)
            print(f"step {step}: y = {slope:.3f} x + {offset:.3f}", flush=True)
    print(f"rank {RANK}: the line is y = {slope!r} x + {offset!r}", flush=True)


if __name__ == "__main__":
    main()
