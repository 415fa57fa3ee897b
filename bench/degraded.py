"""Slow ranks: false alarms in a simulated week, and after how many steps a slow rank is found.

    python -m bench.degraded                     the table of the docs, about two minutes
    python -m bench.degraded --ranks 64 --hours 24

One rank a member. A rank's own part of a step is 2 s, times a speed of its own (1 % between ranks) and a jitter of 3 or
10 % a step; one step in 50 has a garbage collection of 0.2 to 2 s, each 500th writes a checkpoint (30 s), and each
1000th evaluates (60 s). The rule is the one that the controller uses, on the medians that a sidecar sends of its last
50 steps. For false alarms it looks each 25 steps, so that windows overlap by half. The slow rank becomes slow in the
middle of a run, and is looked for after each step.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from gangctl.core.facts.progress import outliers
from gangsidecar.agent.progress import WINDOW

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP_MS = 2000.0
LOOK = WINDOW // 2
ROUNDS = 20
SEED = 7


class Ranks:
    """Ranks that make steps together."""

    def __init__(self, ranks: int, jitter: float) -> None:
        """``jitter``: the standard deviation of a step's own time, as a share of it."""
        self.random = np.random.default_rng(SEED)
        self.speed = self.random.normal(1.0, 0.01, ranks)
        self.jitter = jitter
        self.made = 0

    def steps(self, many: int) -> NDArray[np.float32]:
        """Milliseconds of the next steps: a row for each step, a column for each rank."""
        shape = many, len(self.speed)
        took = STEP_MS * self.speed * (1 + self.jitter * self.random.standard_normal(shape, dtype=np.float32))
        paused = self.random.random(shape, dtype=np.float32) < 1 / 50
        took += paused * self.random.uniform(200, 2000, shape)
        numbers = np.arange(self.made + 1, self.made + many + 1)[:, None]
        took += 30_000 * (numbers % 500 == 0) + 60_000 * (numbers % 1000 == 0)
        self.made += many
        rounded: NDArray[np.float32] = np.maximum(took, 0).round().astype(np.float32)
        return rounded


def named(window: NDArray[np.float32], *, stays: bool = False) -> list[str]:
    """The ranks that are named after these steps."""
    own = np.partition(window, WINDOW // 2 - 1, axis=0)[WINDOW // 2 - 1]  # The lower median, as the sidecar's.
    return [one.member for one in outliers([(int(ms), at, str(at)) for at, ms in enumerate(own)], stays=stays)]


def false_alarms(ranks: int, jitter: float, hours: float) -> tuple[int, int]:
    """How often a rank is named though none is slow, and in how many looks."""
    gang, alarms, looks = Ranks(ranks, jitter), 0, int(hours * 3600 * 1000 / STEP_MS) // LOOK
    window, stays = gang.steps(WINDOW), False
    for _ in range(looks):
        window = np.concatenate([window[LOOK:], gang.steps(LOOK)])
        found = named(window, stays=stays)
        alarms += bool(found) and not stays
        stays = bool(found)
    return alarms, looks


def steps_until_found(ranks: int, jitter: float, slower: float) -> list[int]:
    """Steps after the onset until the slow rank alone is named, in each round; 0 where it isn't within 500."""
    gang, needed = Ranks(ranks, jitter), []
    for at in range(ROUNDS):
        window, slow = gang.steps(WINDOW), at % ranks
        for step in range(1, 501):
            newest = gang.steps(1)
            newest[:, slow] *= 1 + slower
            window = np.concatenate([window[1:], newest])
            if named(window) == [str(slow)]:
                needed.append(step)
                break
        else:
            needed.append(0)
    return needed


def main() -> None:
    """Print one row for each jitter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=168.0)
    parser.add_argument("--slower", type=float, default=0.15)
    asked = parser.parse_args()
    print(f"{asked.ranks} ranks, {asked.hours:g} h of steps of {STEP_MS / 1000:g} s, a rank {asked.slower:.0%} slower")
    print("jitter  false alarms      looks  found in  steps until found (median, most)")
    for jitter in (0.03, 0.10):
        alarms, looks = false_alarms(asked.ranks, jitter, asked.hours)
        needed = steps_until_found(asked.ranks, jitter, asked.slower)
        found = sorted(one for one in needed if one)
        told = f"{found[len(found) // 2]}, {found[-1]}" if found else "-"
        print(f"{jitter:6.0%}  {alarms:12}  {looks:9}  {len(found):5}/{len(needed)}  {told}")


if __name__ == "__main__":
    main()
