"""Lives of gangs drawn by a seed: for long runs and for mutants. Hypothesis draws its own, and shrinks them better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, Run, simulate
from tests.simulation.setups import setups
from tests.simulation.violations import ViolationError

PAUSES = (0, 0, 1, 2, 3, 5, 8, 13, 20, 40)


@dataclass(frozen=True)
class Life:
    """Everything that makes one simulated run what it is."""

    setup: str
    seed: int
    injections: tuple[Injection, ...]
    disorder: int
    warm: bool

    def run(self) -> Run:
        """Live it.

        Raises:
            ViolationError: an invariant doesn't hold.
        """
        return simulate(self.setup, self.seed, self.injections, disorder=self.disorder, warm=self.warm)


def drawn(seed: int) -> Life:
    """The life of this seed: the same as long as faults and setups are the same."""
    random = Random(seed)
    names = list(DRAWN)
    if random.random() < 0.4:  # The same few things again and again.
        names = [*random.sample(names, 3), "a worker is killed", "half a minute passes"]
    injections = tuple(
        Injection(random.choice(PAUSES), random.choice(names), random.randrange(16))
        for _ in range(random.randrange(1, 14))
    )
    return Life(random.choice(list(setups())), seed, injections, random.randrange(5), random.random() < 0.5)


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
    for at, one in enumerate(life.injections):
        yield replace(life, injections=life.injections[:at] + life.injections[at + 1 :])
        for after in (0, one.after // 2):
            if after < one.after:
                changed = replace(one, after=after)
                yield replace(life, injections=(*life.injections[:at], changed, *life.injections[at + 1 :]))
    if life.disorder:
        yield replace(life, disorder=life.disorder - 1)


def _broken(life: Life) -> ViolationError | None:
    try:
        life.run()
    except ViolationError as error:
        return error
    return None
