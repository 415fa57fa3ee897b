"""The worker of a JobSet: it finds its peers by their host names, notes what it sees, and ends when it is asked to."""

import json
import os
import socket
import sys
import time
from pathlib import Path

FOLDER = Path("/checkpoints")


def address(host: str) -> str:
    """DNS shows a pod a moment after it has an address."""
    for _ in range(600):
        try:
            return socket.gethostbyname(host)
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{host} isn't found")


def main() -> None:
    """Note once, then wait for the file with the exit code."""
    me = socket.gethostname()
    noted = {
        "index": os.environ["JOB_COMPLETION_INDEX"],
        "foreign": sorted({"RANK", "WORLD_SIZE", "MASTER_ADDR"} & os.environ.keys()),
        "peers": {host: address(host) for host in os.environ["PEERS"].split()},
        "pid": os.getpid(),
    }
    with (FOLDER / me).open("a") as file:
        file.write(json.dumps(noted) + "\n")
    end = FOLDER / "end"
    step = 0
    while not (end.exists() and end.read_text()):
        step += 1
        print("step", step, flush=True)
        time.sleep(0.05)
    sys.exit(int(end.read_text()))


if __name__ == "__main__":
    main()
