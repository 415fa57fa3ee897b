"""False alarms and misses of `gangctl gate`, in simulated changes that are looked at each hour for two days.

    python -m bench.gate            what docs/tasks/trust-nodes.md quotes

Ten nodes of a baseline and four candidates run side by side. A change without an effect leaves the candidates' rate as
it is; a bad one adds one event a node-day. Faults and restarts are the same events. The seed is fixed.
"""

from __future__ import annotations

import argparse
import random
from typing import Final

from gangctl.annexes.node_records.gate import Measure, Outcome, Sample, judge

CANDIDATES: Final = 4
BASELINE: Final = 10
HOURS: Final = 48
RATES: Final = (0.02, 0.05, 0.1, 0.3, 0.6, 1.0)
"""Events per node-day of the baseline."""


def watched(chance: random.Random, rate: float, added: float = 0.0) -> Outcome:
    """The answer to those who look each hour until there is one, at most for two days."""
    seen, rates = {CANDIDATES: 0, BASELINE: 0}, {CANDIDATES: rate + added, BASELINE: rate}
    for hour in range(1, HOURS + 1):
        for nodes in seen:
            seen[nodes] += sum(chance.random() < rates[nodes] / 24 for _ in range(nodes))
        candidate, baseline = (Sample(nodes, nodes * hour / 24, dict.fromkeys(Measure, seen[nodes])) for nodes in seen)
        found = judge(candidate, baseline, {}, 1.0).outcome
        if found is not Outcome.NOT_ENOUGH_DATA:
            return found
    return Outcome.NOT_ENOUGH_DATA


def main() -> None:
    """Print a row for each rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changes", metavar="N", type=int, default=1000, help="simulated changes (default: %(default)s)"
    )
    changes: int = parser.parse_args().changes
    print("events a node-day | added | pass | fail | not enough data")
    for rate in RATES:
        for added in (0.0, 1.0):
            chance = random.Random(1)
            found = [watched(chance, rate, added) for _ in range(changes)]
            print(rate, added, *(f"{found.count(one) / changes:.1%}" for one in Outcome), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
