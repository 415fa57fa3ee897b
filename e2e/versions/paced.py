"""Run a script as ``python paced.py SCRIPT`` with steps of at least PACE seconds; SIGUSR1 ends it with the code 75.

Each step of each rank adds a byte to the file ``attempt-N``. The attempt N waits before step 80 N for a fault, if N is
at most FAULTS: a machine may be so slow that the training would end before.
"""

import os
import runpy
import signal
import sys
import time
from pathlib import Path

from gangclient import Client

PROGRESS = Client.progress


def progress(self: Client, step: int, phase: str = "Step", seconds: "float | None" = None) -> None:
    """Report it, and wait."""
    PROGRESS(self, step, phase, seconds)
    with Path(f"attempt-{self.number}").open("a") as file:
        file.write(".")
    time.sleep(float(os.environ["PACE"]))
    while self.number <= int(os.environ["FAULTS"]) and step >= 80 * self.number:
        time.sleep(1)


Client.progress = progress  # type: ignore[method-assign]
signal.signal(signal.SIGUSR1, lambda *_: os._exit(75))
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
