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
from tests.simulation.setups import KEPT, KEPT_ELASTIC

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
    "an attempt of another size restored what processes held",
)


SHRINKS = ("train", "train", "pods can or can't be started", "a pod is deleted", "a node is lost", "minutes pass")
SHRUNK = ("train", "pods can or can't be started", "a pod is deleted", "half a minute passes", "half a minute passes")


def life(seed: int) -> Counter[str]:
    """Most of what goes wrong is about states and parked processes, and in an elastic gang about its members."""
    random = Random(seed)
    setup, often = random.choice(((KEPT, OFTEN), (KEPT_ELASTIC, SHRINKS)))
    names = [random.choice(random.choice((often, WHILE_PARKING, DRAWN))) for _ in range(FAULTS)]
    faults = [Injection(random.choice(PAUSES), name, random.randrange(16)) for name in names]
    opening = (SCRIPTS_PARK, *(SHRUNK if setup == KEPT_ELASTIC else ()))
    faults = [*(Injection(20 * (at > 0), name, seed) for at, name in enumerate(opening)), *faults]
    return simulate(setup, seed, faults, disorder=random.randrange(4), warm=True).universe.power


def test_each_attempt_has_one_restore_point_that_all_its_members_have_or_get() -> None:
    reached = sum(map(life, range(tries(LIVES))), Counter[str]())
    missed = [what for what in REACHED if not reached[what]]
    assert not missed
