"""The smallest restartable job: one file, the standard library only, no gangclient.

    gangctl run examples/plain.yaml
    python3 examples/train_plain.py           # alone; after Ctrl-C, start it again: it continues

It fits a line to noisy points. Its only input from gangctl is the environment; its only output for gangctl is a
directory with checkpoints and the exit code. ``train.py`` does the same with a real model, collectives and gangclient.
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
    """Step, slope and offset to continue from: gangctl selects the step, so that all ranks start at the same one."""
    folder = Path(os.environ["GANG_RESTORE_PATH"]) if "GANG_RESTORE_PATH" in os.environ else None
    if "GANG_ATTEMPT" not in os.environ:  # without gangctl: the newest complete checkpoint
        complete = sorted(DIRECTORY.glob("step-*/DONE"), key=step_of)
        folder = complete[-1].parent if complete else None
    if folder is None:
        return 0, 0.0, 0.0
    state = json.loads((folder / "state.json").read_text())
    return state["step"], state["slope"], state["offset"]


def save(step: int, slope: float, offset: float) -> None:
    """Data first, then DONE, each synced before the next: a process that dies in between leaves no checkpoint."""
    folder = DIRECTORY / f"step-{step}"
    drop(folder)
    folder.mkdir(parents=True)
    state = {"step": step, "slope": slope, "offset": offset}  # JSON writes a float so that it reads the same
    for name, content in (("state.json", json.dumps(state)), ("DONE", "")):
        with (folder / name).open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    for place in (folder, DIRECTORY):  # sync the directory entries as well
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    for done in sorted(DIRECTORY.glob("step-*/DONE"), key=step_of)[:-KEPT]:
        drop(done.parent)


def drop(folder: Path) -> None:
    """Delete a checkpoint, or the remains of an incomplete one: DONE first."""
    (folder / "DONE").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def step_of(done: Path) -> int:
    """The step of a DONE file, from the name of its folder."""
    return int(done.parent.name.removeprefix("step-"))


def main() -> None:
    """Train. SIGTERM needs no handler: it ends the process, as a restart requires."""
    step, slope, offset = begin()
    print(f"rank {RANK}: begins after step {step}", flush=True)
    while step < STEPS:
        step += 1
        chance = random.Random(step)  # noqa: S311 - points depend only on the step, so a repeated step is the same
        for _ in range(100):
            x = chance.uniform(-1, 1)
            error = slope * x + offset - (3 * x + 2 + chance.gauss(0, 0.1))
            slope, offset = slope - 0.01 * error * x, offset - 0.01 * error
        time.sleep(0.05)  # otherwise it would end before you can kill it
        if RANK == 0 and step % SAVE_EVERY == 0:
            save(step, slope, offset)
            print(f"step {step}: y = {slope:.3f} x + {offset:.3f}", flush=True)
    print(f"rank {RANK}: the line is y = {slope!r} x + {offset!r}", flush=True)


if __name__ == "__main__":
    main()
