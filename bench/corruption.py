"""After how many steps an injected corruption is named, if the script compares its replicas every so many steps.

Usage: ``python -m bench.corruption [--rounds 20] [--ranks 4]``. One gang on this machine trains the same numbers in
each rank, in step by a ring over TCP. In each attempt, chance chooses a rank and a step: after that step one bit of one
of its numbers is wrong, without an error. Every N steps the ranks exchange checksums, and rank 0 calls
``gangclient.corrupt`` for a rank whose checksum is not that of most. Attempts take turns at N.

It prints a line for each attempt, and for each N a row of docs/benchmarks.md: the steps from the wrong bit to the call,
and to the last step of any rank before gangctl had stopped it, how often the cause named the right rank, and how many
comparisons before the wrong bit differed.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.hangs import RING, ended_attempts

EVERY = (1, 10, 100)
"""Steps between two comparisons."""
TRAIN = """
import os, random, struct, time, zlib
import gangclient
from ring import Ring

rank, size, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "GANG_ATTEMPT"))
every = EVERY[attempt % len(EVERY)]
chance = random.Random(attempt)
victim, flip = chance.randrange(size), chance.randrange(20, 20 + 2 * every)
folder = os.path.join(FOLDER, str(attempt))
os.makedirs(folder, exist_ok=True)
gang, ring = gangclient.connect(), Ring(folder, rank, size)
weights, compared, false = [float(at) for at in range(64)], 0, 0
last = open(os.path.join(folder, f"last-{rank}"), "w")

def gathered(value):
    found, passed = {rank: value}, value
    for distance in range(1, size):
        ring.to.sendall(struct.pack("d", passed))
        passed = ring._received()
        found[(rank - distance) % size] = passed
    return found

for step in range(1, 100000):
    values = gathered(sum(weights) * random.Random(step * size + rank).random())
    total = sum(values[one] for one in range(size))  # in one order, so that all ranks have the same bits
    weights = [0.999 * one + 1e-6 * total + at for at, one in enumerate(weights)]
    if (rank, step) == (victim, flip):
        bits = int.from_bytes(struct.pack("d", weights[7]), "little") ^ (1 << 20)
        weights[7] = struct.unpack("d", bits.to_bytes(8, "little"))[0]
    time.sleep(0.005)
    last.seek(0)
    last.write(str(step))
    last.flush()
    if step % every == 0:
        sums = gathered(float(zlib.crc32(struct.pack("64d", *weights))))
        most = max(sums.values(), key=list(sums.values()).count)
        odd = [one for one, value in sums.items() if value != most]
        compared, false = compared + (step < flip), false + (step < flip and bool(odd))
        if odd and rank == 0 and not os.path.exists(os.path.join(folder, "truth")):
            with open(os.path.join(folder, "truth"), "w") as file:
                file.write(f"{victim} {every} {flip} {step} {compared} {false}")
            gang.corrupt(since_step=step - every + 1, why="its checksum is not that of most", rank=odd[0])
    gang.progress(step)
"""


class Row(NamedTuple):
    """One attempt."""

    called: int
    """Steps from the wrong bit to the call."""
    ended: int
    """Steps from the wrong bit to the last of any rank."""
    is_right: bool
    compared: int
    """Comparisons before the wrong bit, and how many of them differed."""
    false: int


def main() -> None:
    """Let a gang compute wrongly, and compare what is named with what is so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="attempts for each N (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="default: %(default)s; of two, neither is that of most")
    arguments = parser.parse_args()
    rows: dict[int, list[Row]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "ring.py").write_text(RING)
        train, most = f"EVERY, FOLDER = {EVERY!r}, {directory!r}\n{TRAIN}", arguments.rounds * len(EVERY)
        with closing(ended_attempts(folder, train, arguments.ranks, most)) as attempts:
            for attempt, cause in attempts:
                add_row(folder / str(attempt), attempt, cause, rows)
    print("compared every | steps to the call: median, most | to the last step | right rank | false alarms")
    for every, found in sorted(rows.items()):
        called, ended, right, compared, false = zip(*found, strict=True)
        steps = ", ".join(f"{number(one)}" for one in (median(called), max(called)))
        whole = ", ".join(f"{number(one)}" for one in (median(ended), max(ended)))
        print(f"{every} | {steps} | {whole} | {sum(right)} of {len(found)} | {sum(false)} of {sum(compared)}")


def number(value: float) -> str:
    """Steps; half a step between two."""
    return f"{value:g}"


def add_row(folder: Path, attempt: int, cause: dict[str, str], rows: dict[int, list[Row]]) -> None:
    """Add what an attempt gave."""
    victim, every, flip, called, compared, false = map(int, (folder / "truth").read_text().split())
    last = max(int(path.read_text()) for path in folder.glob("last-*"))
    is_right = (cause["reason"], cause.get("member")) == ("Corruption", f"worker-{victim}")
    rows[every].append(Row(called - flip, last - flip, is_right, compared, false))
    named = cause.get("member", "-")
    print(
        f"{attempt:3} every {every:3}: worker-{victim} after step {flip}: called {called}, last {last}: {named}",
        flush=True,
    )


if __name__ == "__main__":
    main()
