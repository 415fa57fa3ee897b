"""Simulate for long: ``tests/simulation/long_run.py --seconds 600 --seed 7``; with ``--exhaustive`` the deep search.

Each seed is one life of a gang. The first that breaks an invariant is made smaller and printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.exhaustive import DEEP, explore
from tests.simulation.invariants import Change
from tests.simulation.seeds import drawn, shrunk
from tests.simulation.violations import ViolationError


def main() -> int:
    """Run it; the exit code says whether all invariants held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--exhaustive", action="store_true", help="search every interleaving of more faults instead")
    arguments = parser.parse_args()
    return search() if arguments.exhaustive else simulate(arguments.seconds, arguments.seed)


def simulate(seconds: float, first: int) -> int:
    """One life after the other."""
    began = time.monotonic()
    moves, seed = 0, first
    changes: Counter[Change] = Counter()
    while time.monotonic() - began < seconds:
        life = drawn(seed)
        try:
            run = life.run()
        except ViolationError:
            smaller, error = shrunk(life)
            print(f"seed {seed}: {error}\n{smaller}\n" + "\n".join(getattr(error, "__notes__", ())[1:]))
            return 1
        moves += run.moves
        changes += run.universe.changes
        seed += 1
    for change, times in changes.most_common():
        print(f"{times:8} {change}")
    print(f"{seed - first} lives, {moves} moves, all invariants held (seeds {first} to {seed - 1})")
    return 0


def search() -> int:
    """The deep searches."""
    for one in DEEP:
        began = time.monotonic()
        try:
            found = explore(one)
        except ViolationError as error:
            print(f"{one}\n{error}\n" + "\n".join(getattr(error, "__notes__", ())))
            return 1
        print(f"{one.name()}: {found.text()}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
