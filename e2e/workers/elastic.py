"""Train with any number of ranks: what a step does depends on the step alone. Rank 0 saves a single file.

It saves every tenth step and, when it is stopped, the last one, so a planned stop costs none.
"""

import os
import signal
import time
from pathlib import Path

import gangclient

DIRECTORY, RANK = Path(os.environ["CHECKPOINT_DIR"]), int(os.environ["RANK"])
STEP_SECONDS, SAVE_EVERY = 0.2, 10
stopping: "list[int]" = []


def save(step: int, value: float) -> None:
    """Write the state, then what marks it complete."""
    folder = DIRECTORY / f"step-{step}"
    folder.mkdir(exist_ok=True)
    (folder / "value").write_text(repr(value))
    (folder / "DONE").touch()


def main() -> None:
    """Go on from the restore point, and note each step with the value that it led to."""
    gang = gangclient.connect()
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    restored = os.environ.get("GANG_RESTORE_PATH")
    step = int(os.environ.get("GANG_RESTORE_STEP", "0"))
    value = float((Path(restored) / "value").read_text()) if restored else 1.0
    sizes = f"{os.environ['WORLD_SIZE']} of {os.environ['GANG_SIZE_WANTED']}"
    with (DIRECTORY / f"rank-{RANK}").open("a", buffering=1) as told:
        print(f"begins {os.environ['GANG_ATTEMPT']} {os.environ['GANG_MEMBER']} {sizes}", file=told)
        while not stopping:
            time.sleep(STEP_SECONDS)
            step, value = step + 1, value * 0.999 + 1 / (step + 2)
            if RANK == 0:
                print(f"step {step} {value!r}", file=told)
                gang.progress(step)
                if step % SAVE_EVERY == 0:
                    save(step, value)
    if RANK == 0 and step % SAVE_EVERY:
        save(step, value)


if __name__ == "__main__":
    main()
