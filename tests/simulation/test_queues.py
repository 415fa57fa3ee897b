"""A gang that waits in a queue of Kueue lives through what happens to other gangs, and through what its queue does."""

from __future__ import annotations

from collections import Counter
from random import Random

from gangctl.core.policy.admission import QueueVerb
from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, simulate
from tests.simulation.queues import DELETED, EVICTED, UNKNOWN
from tests.simulation.seeds import PAUSES
from tests.simulation.setups import QUEUED

LIVES, FAULTS = 40, 20
PODS = ("a pod is deleted", "the pods of all members are deleted", "a worker is killed")
OFTEN = (EVICTED, DELETED, UNKNOWN, UNKNOWN, "the roles change", "minutes pass", *PODS)


def life(seed: int) -> Counter[str]:
    """Half of what goes wrong concerns the queue, or what it has admitted."""
    random = Random(seed)
    names = [random.choice(random.choice((OFTEN, DRAWN))) for _ in range(FAULTS)]
    faults = [Injection(random.choice(PAUSES), name, random.randrange(16)) for name in names]
    return simulate(QUEUED, seed, faults, disorder=random.randrange(4), warm=True).universe.power


def test_a_queued_gang_has_pods_and_quota_as_its_queue_says() -> None:
    reached = sum(map(life, range(LIVES)), Counter[str]())
    missed = [verb for verb in QueueVerb if not reached[f"the queue is told {verb}"]]
    assert not missed
