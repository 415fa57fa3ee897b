"""A gang with checks lives through sick nodes, checks that fail everywhere, checks that hang, and all else."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.effort import tries
from tests.simulation.checks import ALL_FAIL, HANGS, SICK
from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, simulate
from tests.simulation.seeds import PAUSES
from tests.simulation.setups import CHECKED

LIVES, FAULTS, RESTED, TOLD = 50, 20, 0.7, 0.08
RARE = {13, 15, 25, 35}
"""Lives that reach what few do: a check at the first start fails, one finds wrong results."""
OFTEN = (SICK, SICK, ALL_FAIL, HANGS, "minutes pass", "a worker is killed", "a worker is killed")
ENDS = (*OFTEN, "a supervisor crashes", "the controller crashes", "a connection ends", "a pod is deleted")
STORY = ("train", "a worker is killed", SICK, "train", "a worker is killed")
"""What is verified, and then computed wrongly and found."""
REACHED = (
    "a check began",
    "a check was killed",
    "a check was killed at its timeout",
    *(f"{name} came to Failed" for name in ("boot", "new", "link", "disk")),
    "link came to CheckFaulty",
    "probe came to CheckFaulty",
    "a check verified checkpoints",
    "a check found wrong results",
    "an attempt went back before what is not trusted",
)


def life(seed: int) -> Counter[str]:
    """Half of what goes wrong concerns checks, or leads to one."""
    random, names = Random(seed), list[str]()
    while len(names) < FAULTS:
        names += STORY if random.random() < TOLD else [random.choice(random.choice((ENDS, DRAWN)))]
    faults = [Injection(random.choice(PAUSES), name, random.randrange(16), random.random() < RESTED) for name in names]
    return simulate(CHECKED, seed, faults, disorder=random.randrange(4), warm=seed % 2 == 0).universe.power


def test_a_checked_gang_replaces_only_who_fails() -> None:
    reached = sum(map(life, RARE.union(range(tries(LIVES)))), Counter[str]())
    missed = [what for what in REACHED if not reached[what]]
    assert not missed
