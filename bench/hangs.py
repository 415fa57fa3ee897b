"""Whom the controller names when a synchronous gang hangs, and how often it is right.

Usage: ``python bench/hangs.py [--hangs 100] [--ranks 4] [--python PATH]``. One gang on this machine hangs again and
again, each time in another of five ways and in a rank that chance chooses: it doesn't come to a barrier or an
all-reduce, its data loader gives nothing, it waits for a lock, or it is stopped by SIGSTOP. The others wait for it in a
collective: of PyTorch, with gloo, if the workers' interpreter has it. Else it is a ring over TCP in plain Python, in
which each rank waits at the same line, and in a folder named torch/distributed, as those of PyTorch are.

It prints which collective it was, a line for each hang, and for each way how often the right rank was named, no rank,
or a wrong one.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

WAYS = ("barrier", "all-reduce", "data loader", "lock", "SIGSTOP")
GLOO = """
import torch
from torch import distributed

class Ring:
    def __init__(self, folder, rank, size):
        distributed.init_process_group("gloo")

    def all_reduce(self, value):
        distributed.all_reduce(torch.tensor([value]))

    def barrier(self):
        distributed.barrier()
"""
RING = '''
import os, socket, struct, time
from pathlib import Path

class Ring:
    """Each rank sends to the next one, and receives from the one before."""

    def __init__(self, folder, rank, size):
        self.rank, self.size = rank, size
        server = socket.create_server(("127.0.0.1", 0))
        Path(folder, f"{rank}.tmp").write_text(str(server.getsockname()[1]))
        os.replace(f"{folder}/{rank}.tmp", f"{folder}/{rank}")
        next_one = Path(folder, str((rank + 1) % size))
        while not next_one.exists():
            time.sleep(0.01)
        self.to = socket.create_connection(("127.0.0.1", int(next_one.read_text())))
        self.of, _ = server.accept()

    def all_reduce(self, value):
        total, passed = value, value
        for _ in range(self.size - 1):
            self.to.sendall(struct.pack("d", passed))
            passed = self._received()
            total += passed
        return total

    def barrier(self):
        self.all_reduce(0.0)

    def _received(self):
        data = b""
        while len(data) < 8:
            data += self.of.recv(8 - len(data))
        return struct.unpack("d", data)[0]
'''
TRAIN = """
import os, queue, random, signal, sys, threading, time
import gangclient
from MODULE import Ring

rank, size, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "GANG_ATTEMPT"))
chance = random.Random(attempt)
way, victim, last = WAYS[attempt % len(WAYS)], chance.randrange(size), chance.randrange(3, 8)
folder = os.path.join(FOLDER, str(attempt))
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "truth"), "w") as file:
    file.write(f"{victim} {way}")
gang, ring = gangclient.connect(), Ring(folder, rank, size)
batches, lock = queue.Queue(maxsize=2), threading.Lock()

def load():
    for step in range(1, 1000):
        if (rank, way, step) == (victim, "data loader", last):
            threading.Event().wait()
        batches.put(step)

def save():
    lock.acquire()
    lock.acquire()

def evaluate():
    threading.Event().wait()

threading.Thread(target=load, daemon=True).start()
for step in range(1, 1000):
    batches.get()
    if (rank, step) == (victim, last) and way != "data loader":
        if way == "SIGSTOP":
            os.kill(os.getpid(), signal.SIGSTOP)
        save() if way == "lock" else evaluate()
    ring.barrier() if way == "barrier" else ring.all_reduce(1.0)
    time.sleep(random.random() / 50)
    gang.progress(step)
"""


def main() -> None:
    """Let a gang hang, and compare what is told with what is so."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hangs", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--python", default=sys.executable, help="the workers' interpreter")
    arguments = parser.parse_args()
    version = "import torch; print(torch.__version__)"
    asked = subprocess.run([arguments.python, "-c", version], capture_output=True, text=True, check=False)
    torch = asked.stdout.strip() if asked.returncode == 0 else ""
    print(
        f"collectives of PyTorch {torch}, gloo" if torch else "a ring in plain Python: this interpreter has no PyTorch"
    )
    found: dict[str, collections.Counter[str]] = {way: collections.Counter() for way in WAYS}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        module = "gloo" if torch else "torch.distributed.distributed_c10d"
        path = folder / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GLOO if torch else RING)
        train = TRAIN.replace("MODULE", module)
        train = f"WAYS, FOLDER = {WAYS!r}, {directory!r}\n{train}"
        with closing(ended_attempts(folder, train, arguments.ranks, arguments.hangs, arguments.python)) as attempts:
            for attempt, cause in attempts:
                victim, _, way = (folder / str(attempt) / "truth").read_text().partition(" ")
                named = cause.get("member", "")
                told = "right" if named == f"worker-{victim}" else "wrong" if named else "none"
                found[way][told] += 1
                print(f"{attempt:3} {way:12} rank {victim}: {told}: {named or '-'}: {cause['message']}", flush=True)
    for way, counts in found.items():
        print(f"{way:12} {', '.join(f'{counts[one]} {one}' for one in ('right', 'none', 'wrong'))}")


def ended_attempts(
    folder: Path, train: str, ranks: int, most: int, python: str = sys.executable
) -> Generator[tuple[int, dict[str, str]]]:
    """Run this script as a gang on this machine; returns so many attempts, each with the cause of its end.

    Close it: that ends the gang.
    """
    (folder / "train.py").write_text(train)
    (folder / "job.json").write_text(json.dumps(job([python, "-u", str(folder / "train.py")], ranks)))
    environment = {**os.environ, "GANGCTL_STATE_DIR": str(folder / "state")}
    gangctl = [str(Path(sys.executable).with_name("gangctl"))]
    with (folder / "log").open("w") as log:
        run = subprocess.Popen([*gangctl, "run", "--plain", str(folder / "job.json")], env=environment, stdout=log)
    try:
        attempt = 1
        while attempt <= most and run.poll() is None:
            time.sleep(0.2)
            for cause in settled(folder / "state/gangs/hangs/gangjob.json", attempt + 1):
                yield attempt, cause
                attempt += 1
    finally:
        run.send_signal(signal.SIGINT)
        run.wait()


def settled(stored: Path, attempt: int) -> list[dict[str, str]]:
    """The cause of the incident that led to this attempt, once it is settled."""
    try:
        status = json.loads(stored.read_text())["status"]
    except (OSError, KeyError):
        return []
    incidents = status.get("incidents", [])
    return [one["cause"] for one in incidents if one["attempt"] == attempt and one.get("settled")]


def job(command: list[str], ranks: int) -> dict[str, object]:
    """A gang that restarts as often as it hangs, in the same pods."""
    pod = {"spec": {"containers": [{"name": "worker", "command": command}]}}
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "hangs"},
        "spec": {
            "progress": {"timeoutSeconds": 4, "onHang": "Restart"},
            "recovery": {
                "budget": {"type": "Unlimited"},
                "replaceAfter": 100,
                "stopGracePeriodSeconds": 4,
                "evidenceWindowSeconds": 0,
            },
            "roles": [{"name": "worker", "replicas": ranks, "template": pod}],
        },
    }


if __name__ == "__main__":
    main()
