"""An elastic gang lives through members that come late, not at all, or again and again, and through all else."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.effort import tries
from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, simulate
from tests.simulation.seeds import PAUSES
from tests.simulation.setups import ELASTIC

LIVES, FAULTS = 40, 24
RARE = {6}
"""A life in which the gang grows."""
NO_START, NO_POD = "pods can or can't be started", "pods can or can't be created"
OFTEN = (NO_START, NO_START, NO_POD, "minutes pass", "minutes pass", "a quarter of an hour passes", "train", "train")
LOSSES = ("a pod is deleted", "a node is lost", "a device is unhealthy", "a worker is killed", "the controller crashes")
REACHED = ("an attempt is smaller", "an attempt is larger", "a gang was stopped to grow")


def life(seed: int) -> Counter[str]:
    """Half of what goes wrong takes members away, or the time in which they would come."""
    random = Random(seed)
    names = [random.choice(random.choice((OFTEN, LOSSES, DRAWN))) for _ in range(FAULTS)]
    faults = [Injection(random.choice(PAUSES), name, random.randrange(16)) for name in names]
    return simulate(ELASTIC, seed, faults, disorder=random.randrange(4), warm=True).universe.power


def test_each_attempt_of_an_elastic_gang_has_one_allowed_size() -> None:
    reached = sum(map(life, RARE.union(range(tries(LIVES)))), Counter[str]())
    missed = [what for what in REACHED if not reached[what]]
    assert not missed
