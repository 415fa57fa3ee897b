"""Lives of gangs drawn by a seed: for long runs and for mutants. Hypothesis draws its own, and shrinks them better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.driving import Fault, Run, simulate
from tests.simulation.invariants import ViolationError
from tests.simulation.mishaps import MISHAPS
from tests.simulation.setups import setups

PAUSES = (0, 0, 1, 2, 3, 5, 8, 13, 20, 40)


@dataclass(frozen=True)
class Life:
    """Everything that makes one simulated run what it is."""

    setup: str
    seed: int
    faults: tuple[Fault, ...]
    disorder: int
    warm: bool

    def run(self) -> Run:
        """Live it.

        Raises:
            ViolationError: an invariant doesn't hold.
        """
        return simulate(self.setup, self.seed, self.faults, disorder=self.disorder, warm=self.warm)


def drawn(seed: int) -> Life:
    """The life of this seed, the same for ever as long as faults and setups are."""
    random = Random(seed)
    names = list(MISHAPS)
    if random.random() < 0.4:  # The same few things again and again.
        names = [*random.sample(names, 3), "a worker is killed", "half a minute passes"]
    faults = tuple(
        Fault(random.choice(PAUSES), random.choice(names), random.randrange(16)) for _ in range(random.randrange(1, 14))
    )
    return Life(random.choice(list(setups())), seed, faults, random.randrange(5), random.random() < 0.5)


def shrunk(life: Life) -> tuple[Life, ViolationError]:
    """The smallest life found that breaks the same invariant, and how."""
    error = _broken(life)
    assert error is not None
    shrinking = True
    while shrinking:
        shrinking = False
        for smaller in _smaller(life):
            broken = _broken(smaller)
            if broken is not None and str(broken)[:11] == str(error)[:11]:
                life, error, shrinking = smaller, broken, True
                break
    return life, error


def _smaller(life: Life) -> Iterator[Life]:
    for at, fault in enumerate(life.faults):
        yield replace(life, faults=life.faults[:at] + life.faults[at + 1 :])
        for after in (0, fault.after // 2):
            if after < fault.after:
                changed = replace(fault, after=after)
                yield replace(life, faults=(*life.faults[:at], changed, *life.faults[at + 1 :]))
    if life.disorder:
        yield replace(life, disorder=life.disorder - 1)


def _broken(life: Life) -> ViolationError | None:
    try:
        life.run()
    except ViolationError as error:
        return error
    return None
