"""False alarms and misses of `gangctl gate`, in simulated changes that are looked at each hour for two days.

    python -m bench.gate                 what docs/tasks/trust-nodes.md quotes
    python -m bench.gate --weeks 200     what docs/benchmarks.md quotes

Ten nodes of a baseline and four candidates run side by side. A change without an effect leaves the candidates' rate as
it is; a bad one adds one event a node-day. Faults and restarts are the same events. The seed is fixed.

In simulated weeks, harmless changes follow each other: the next one begins when the gate has answered, or after two
days. With gangs, two begin on the candidates and five on the baseline every twelve hours, and differ by chance alone.
"""

from __future__ import annotations

import argparse
import itertools
import random
from typing import Final, NamedTuple

from gangctl.annexes.node_records.gate import GangMeasure, Measure, Outcome, Sample, judge

CANDIDATES: Final = 4
BASELINE: Final = 10
HOURS: Final = 48
WEEK: Final = 168
EVERY: Final = 12
"""Hours from the begin of gangs to that of the next."""
RATES: Final = (0.02, 0.05, 0.1, 0.3, 0.6, 1.0)
"""Events per node-day of the baseline."""


class Answer(NamedTuple):
    """What the gate says, and after how many hours."""

    outcome: Outcome
    hours: int = HOURS


def watched(chance: random.Random, rate: float, added: float = 0.0, *, gangs: bool = False) -> Answer:
    """The answer to those who look each hour until there is one, at most for two days."""
    seen, rates = {CANDIDATES: 0, BASELINE: 0}, {CANDIDATES: rate + added, BASELINE: rate}
    ran: dict[int, dict[GangMeasure, tuple[float, ...]]] = {nodes: {} for nodes in seen}
    for hour in range(1, HOURS + 1):
        for nodes in seen:
            seen[nodes] += sum(chance.random() < rates[nodes] / 24 for _ in range(nodes))
            if gangs and hour % EVERY == 0:
                ran[nodes] = {one: (*_drawn(chance, nodes // 2), *ran[nodes].get(one, ())) for one in GangMeasure}
        candidate, baseline = (
            Sample(nodes, nodes * hour / 24, dict.fromkeys(Measure, seen[nodes]), ran[nodes]) for nodes in seen
        )
        found = judge(candidate, baseline, {}, 1.0).outcome
        if found is not Outcome.NOT_ENOUGH_DATA:
            return Answer(found, hour)
    return Answer(Outcome.NOT_ENOUGH_DATA)


def _drawn(chance: random.Random, gangs: int) -> list[float]:
    return [chance.lognormvariate(0.0, 0.2) for _ in range(gangs)]


def print_weeks(weeks: int) -> None:
    """Print for each rate how many harmless changes a week are answered, and how many fail."""
    print("events a node-day | gangs | answered a week | false alarms a week | share of the answers")
    for rate, gangs in itertools.product(RATES[:4], (False, True)):
        chance, hour, found = random.Random(1), 0, []
        while hour < weeks * WEEK:
            found.append(watched(chance, rate, gangs=gangs))
            hour += found[-1].hours
        failed = sum(one.outcome is Outcome.FAILED for one in found)
        answered = sum(one.outcome is not Outcome.NOT_ENOUGH_DATA for one in found)
        share = f"{failed / answered:.1%}" if answered else "-"
        print(rate, gangs, f"{answered / weeks:.2f}", f"{failed / weeks:.3f}", share, sep=" | ", flush=True)


def main() -> None:
    """Print a row for each rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changes", metavar="N", type=int, default=1000, help="simulated changes (default: %(default)s)"
    )
    parser.add_argument("--weeks", metavar="N", type=int, help="simulate harmless changes for so many weeks instead")
    arguments = parser.parse_args()
    changes: int = arguments.changes
    if arguments.weeks:
        print_weeks(arguments.weeks)
        return
    print("events a node-day | added | pass | fail | not enough data")
    for rate in RATES:
        for added in (0.0, 1.0):
            chance = random.Random(1)
            found = [watched(chance, rate, added).outcome for _ in range(changes)]
            print(rate, added, *(f"{found.count(one) / changes:.1%}" for one in Outcome), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
