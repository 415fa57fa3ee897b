"""`gangctl run` with workers that want to hear of a stop before its signal."""

from __future__ import annotations

import sys

from tests.cli.here import Here, manifest

SCRIPT = """
import os, pathlib, time
import gangclient
name = os.environ["GANG_MEMBER"]
gang = gangclient.connect()
def act(stop):
    time.sleep(0.05)  # Aborting collectives takes a moment, far from the half second that it may take.
    with open(name + ".stops", "a") as stops:
        stops.write(f"{stop.attempt}\\n")
gang.on_stop(act)
while not pathlib.Path(name + ".listens").exists():
    pathlib.Path(name + ".listens").touch()
    time.sleep(0.5)
with open(name + ".attempts", "a") as attempts:
    attempts.write(os.environ["GANG_ATTEMPT"] + "\\n")
while True:
    time.sleep(0.05)
"""
"""It leaves SIGTERM to the kernel, as most scripts do."""


def test_every_worker_acts_before_the_signal_ends_it(folder: Here) -> None:
    folder.write(manifest((sys.executable, "-c", SCRIPT)))
    folder.run()
    folder.runs_attempt(1)
    folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    folder.runs_attempt(2)
    told = sorted(path.name for path in folder.path.glob("*.stops") if path.read_text().split() == ["1"])
    assert told == ["worker-0.stops", "worker-2.stops"]
