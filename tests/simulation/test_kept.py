"""A gang whose survivors offer their state lives through their deaths, states that are torn, and all else."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.effort import tries
from tests.simulation.faults import DRAWN
from tests.simulation.kept import TORN
from tests.simulation.lives import Injection, simulate
from tests.simulation.parking import SCRIPTS_PARK
from tests.simulation.seeds import PAUSES, WHILE_PARKING
from tests.simulation.setups import KEPT

LIVES, FAULTS = 40, 30
OFTEN = (
    TORN,
    "train",
    "train",
    "one rank trains",
    "a worker is killed",
    "a parked process dies",
    "all workers end at once",
)
REACHED = (
    "a process offered its state",
    "an attempt restored what processes held",
    "a rank got its state from another",
)


def life(seed: int) -> Counter[str]:
    """Two thirds of what goes wrong is about states and parked processes."""
    random = Random(seed)
    names = [random.choice(random.choice((OFTEN, WHILE_PARKING, DRAWN))) for _ in range(FAULTS)]
    faults = [Injection(random.choice(PAUSES), name, random.randrange(16)) for name in names]
    faults.insert(0, Injection(0, SCRIPTS_PARK))
    return simulate(KEPT, seed, faults, disorder=random.randrange(4), warm=True).universe.power


def test_each_attempt_has_one_restore_point_that_all_its_members_have_or_get() -> None:
    reached = sum(map(life, range(tries(LIVES))), Counter[str]())
    missed = [what for what in REACHED if not reached[what]]
    assert not missed
