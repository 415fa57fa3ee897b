"""A gang that waits in a queue of Kueue lives through what happens to other gangs, and through what its queue does."""

from __future__ import annotations

from collections import Counter
from random import Random

from gangctl.core.policy.admission import QueueVerb
from tests.effort import tries
from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, simulate
from tests.simulation.queues import DELETED, EVICTED, SCARCE, TAKEN, UNKNOWN
from tests.simulation.seeds import PAUSES
from tests.simulation.setups import QUEUED, QUEUED_ELASTIC

LIVES, FAULTS = 40, 20
RARE = {11, 13}
"""Lives in which the gang leaves its queue."""
PODS = ("a pod is deleted", "the pods of all members are deleted", "a worker is killed")
OFTEN = (EVICTED, DELETED, UNKNOWN, UNKNOWN, "the roles change", "minutes pass", *PODS)


NO_START = "pods can or can't be started"
ELASTIC = (SCARCE, TAKEN, UNKNOWN, NO_START, "minutes pass", "a quarter of an hour passes", "train", "train", *PODS)
OF_SIZES = (QueueVerb.GROW, QueueVerb.GIVE)


def life(setup: str, often: tuple[str, ...], seed: int) -> Counter[str]:
    """Half of what goes wrong concerns the queue, or what it has admitted."""
    random = Random(seed)
    names = [random.choice(random.choice((often, DRAWN))) for _ in range(FAULTS)]
    faults = [Injection(random.choice(PAUSES), name, random.randrange(16)) for name in names]
    return simulate(setup, seed, faults, disorder=random.randrange(4), warm=True).universe.power


def test_a_queued_gang_has_pods_and_quota_as_its_queue_says() -> None:
    reached = sum((life(QUEUED, OFTEN, seed) for seed in RARE.union(range(tries(LIVES)))), Counter[str]())
    missed = [verb for verb in QueueVerb if verb not in OF_SIZES and not reached[f"the queue is told {verb}"]]
    assert not missed


def test_an_elastic_gang_has_as_many_members_as_its_queue_gives_quota_for() -> None:
    reached = sum((life(QUEUED_ELASTIC, (*ELASTIC, EVICTED), seed) for seed in range(tries(LIVES))), Counter[str]())
    wanted = [*(f"the queue is told {verb}" for verb in OF_SIZES), "an attempt is smaller", "an attempt is larger"]
    missed = [what for what in wanted if not reached[what]]
    assert not missed
