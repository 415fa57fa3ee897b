"""Simulate for long: ``tests/simulation/long_run.py --seconds 600 --seed 7``; with ``--exhaustive`` the deep search.

Each seed is one life of a gang. Of three, one has policies that are drawn, too, and one has replicas that relay. The
first that breaks an invariant is made smaller and printed, and the exit code is 1. Ctrl-C ends it after the life that
runs, with what was reached and the seed to go on from; a second one at once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter

from tests.simulation import power
from tests.simulation.exhaustive import DEEP, explore
from tests.simulation.faults import DRAWN
from tests.simulation.invariants import Change
from tests.simulation.seeds import drawn, shrunk, with_any_policies, with_relays
from tests.simulation.violations import ViolationError

ENOUGH_LIVES = 400
"""So many must reach everything that has a floor above 1."""


def main() -> int:
    """Run it; the exit code says whether all invariants held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how much processor time (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--write", action="store_true", help="write what was reached into RESULTS.md")
    parser.add_argument("--exhaustive", action="store_true", help="search every interleaving of more faults instead")
    arguments = parser.parse_args()
    return search() if arguments.exhaustive else simulate(arguments)


def simulate(arguments: argparse.Namespace) -> int:
    """One life after the other."""
    began, first = time.process_time(), arguments.seed
    moves, seed = 0, first
    changes: Counter[Change] = Counter()
    reached: Counter[str] = Counter()
    struck: Counter[tuple[str, str]] = Counter()
    interrupts = list[int]()

    def interrupt(number: int, _frame: object) -> None:
        interrupts.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, interrupt)
    while time.process_time() - began < arguments.seconds and not interrupts:
        life = (drawn, with_any_policies, with_relays)[seed % 3](seed)
        try:
            run = life.run()
        except ViolationError:
            smaller, error = shrunk(life)
            print(f"seed {seed}: {error}\n{smaller}\n" + "\n".join(getattr(error, "__notes__", ())[1:]))
            return 1
        moves += run.moves
        changes += run.universe.changes
        reached += run.universe.power
        struck += run.universe.struck
        seed += 1
    took = f"{(time.process_time() - began) / 60:.1f} min"
    held = f"{seed - first} lives in {took}, {moves} moves, all invariants held (seeds {first} to {seed - 1})"
    stored = ("| change of the lifecycle | stored |", "| --- | ---: |")
    rows = [f"| {change} | {times} |" for change, times in changes.most_common()]
    shown = [*stored, *rows, "", *power.table(reached, struck, DRAWN)]
    print("\n".join(shown) + f"\n{held}")
    if arguments.write:
        power.write([f"`make simulate`: {held}.", "", *shown])
    few = power.missed(reached, struck, DRAWN, rare=False) if seed - first >= ENOUGH_LIVES else []
    print("\n".join(f"too little power: {one}" for one in few))
    if interrupts:
        print(f"interrupted; go on with: make simulate SEED={seed}")
        return 130
    return 1 if few else 0


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
