"""What checkpoints in memory cost: saving, copying to a peer, loading, and a training step beside it.

    python -m bench.memory                   two ranks on this machine, parts of 64 MiB and 1 GiB

The ranks are two processes with real files in /dev/shm and real connections over loopback. Their sidecar is a fake
that takes every registration. `save` is what the training loop waits for; `safe after` counts from the end of `save`
until all ranks have heard that the step and its copies are whole; `own` and `peer` load a part from either place. `step
beside`: a loop of arithmetic in one thread while both ranks save and copy without a pause, times as long as alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from gangclient import Client, Restore
from gangclient.memory._link import Identity
from gangclient.memory._memory import Store
from gangclient.memory._parts import Folder

MIB = 1 << 20
ROUNDS = 5
BESIDE_SECONDS = 3.0


class Registry:
    """Takes every registration."""

    def __init__(self, restore: Restore | None) -> None:
        self.restore = restore
        self.on_close: list[Callable[[], object]] = []

    def register(self, *_place: Any, **_owner: Any) -> bool:
        """It has taken it."""
        return True


def rank(number: int, port: int, root: str, size: int, channel: Connection) -> None:
    """One rank: it does what it is told, and answers with seconds."""
    data = os.urandom(MIB) * size
    while True:
        what, attempt, restored = channel.recv()
        own = Identity("uid", attempt, number, 2, f"worker-{number}", f"node-{number}")
        restore = None if restored is None else Restore(restored, "", "ram")
        folder = Folder(f"{root}/{number}", "uid")
        store = Store(cast("Client", Registry(restore)), own, "ram", folder, ("127.0.0.1", port + attempt))
        if what == "save":
            channel.send(_save(store, data))
        elif what == "load":
            began = time.monotonic()
            file = store.load()
            took = time.monotonic() - began
            if file is not None:
                file.close()
            channel.send([took])
        elif what == "beside":
            channel.send(_beside(store, data) if number == 0 else _again_and_again(store, data))
        channel.recv()  # The other rank may still need this one.
        store.close()


def _save(store: Store, data: bytes) -> list[float]:
    found: list[float] = []
    for step in range(1, ROUNDS + 1):
        began = time.monotonic()
        store.save(step, data)
        saved = time.monotonic()
        while store.newest != step:
            time.sleep(0.001)
        found += [saved - began, time.monotonic() - saved]
    return found


def _steps(seconds: float) -> int:
    until, made = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        zlib.crc32(b"x" * 4096)
        made += 1
    return made


def _beside(store: Store, data: bytes) -> list[float]:
    alone = _steps(BESIDE_SECONDS)
    store.save(1, data)
    until, made, step = time.monotonic() + BESIDE_SECONDS, 0, 1
    while time.monotonic() < until:
        made += _steps(0.1)
        if store.newest == step:
            step += 1
            began = time.monotonic()
            store.save(step, data)
            until += time.monotonic() - began  # What save itself takes is measured above.
    return [alone / made]


def _again_and_again(store: Store, data: bytes) -> list[float]:
    until, step = time.monotonic() + 2 * BESIDE_SECONDS, 1
    store.save(1, data)
    while time.monotonic() < until:
        if store.newest == step:
            step += 1
            store.save(step, data)
        time.sleep(0.001)
    return []


def measured(size: int) -> list[float]:
    """Seconds: save, safe after, own, peer; and how many times as long a step takes beside it."""
    root = tempfile.mkdtemp(prefix="gangctl-bench-", dir="/dev/shm")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    channels, processes = [], []
    for number in range(2):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=rank, args=(number, port, root, size, theirs), daemon=True)
        process.start()
        channels.append(ours)
        processes.append(process)

    def both(what: str, attempt: int, restored: int | None = None) -> list[list[float]]:
        for channel in channels:
            channel.send((what, attempt, restored))
        answers = [channel.recv() for channel in channels]
        for channel in channels:
            channel.send(None)
        return answers

    try:
        times = both("save", 1)[0]
        own = both("load", 2, ROUNDS)[0]
        shutil.rmtree(Path(root) / "0")
        peer = both("load", 3, ROUNDS)[0]
        beside = both("beside", 4)[0]
        return [statistics.median(times[::2]), statistics.median(times[1::2]), *own, *peer, *beside]
    finally:
        for process in processes:
            process.terminate()
            process.join()
        shutil.rmtree(root)


def main() -> None:
    """Measure, and print a table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--mebibytes", type=int, nargs="*", default=[64, 1024], help="sizes of a rank's part")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds")
    print("  MiB   save  safe after    own   peer  step beside")
    for size in flags.parse_args().mebibytes:
        save, safe, own, peer, beside = measured(size)
        print(f"{size:5} {save:6.2f} {safe:11.2f} {own:6.2f} {peer:6.2f} {beside:10.2f} x")


if __name__ == "__main__":
    main()
