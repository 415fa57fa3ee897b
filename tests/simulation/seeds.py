"""Lives of gangs drawn by a seed: for long runs and for mutants. Hypothesis draws its own, and shrinks them better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, Run, simulate
from tests.simulation.setups import setups
from tests.simulation.violations import ViolationError

TARGETS = 64
PAUSES = (0, 0, 0, 1, 2, 3, 5, 8, 13, 20, 40)
FAULTS_IN_A_LIFE = (24, 60)
ENDING = frozenset({"a worker finishes", "all workers finish", "a worker exits with a fatal code"})
"""A gang that has ended has no more attempts: these come mostly towards the end of a life."""
RESTARTING = ("a worker is killed", "a worker exits with 1", "a supervisor crashes", "a framework asks for a restart")
"""What leads to another attempt and to nothing else: lives are long."""
REMEDIES = {
    "a member is cut off": "a member is reached again",
    "a member isn't heard": "a member is reached again",
    "a member doesn't hear": "a member is reached again",
    "a node is lost": "a node comes back",
    "a kubelet is away": "a node comes back",
    **{
        name: name
        for name in (
            "no member reaches a controller, or all do again",
            "no controller leads, or one does again",
            "pods can or can't be created",
            "pods can or can't be started",
            "the user suspends or resumes",
        )
    },
}
"""What lasts is mostly mended a few faults later: else nothing else would happen in a life."""
THEMES = (
    ("a member is cut off", "a worker is killed", "a worker ignores SIGTERM", "a pod is deleted", "the policy changes"),
    ("a member isn't heard", "a worker ignores SIGTERM", "a worker is killed", "half a minute passes"),
    ("all workers finish", "no controller leads, or one does again", "a quarter of an hour passes", "minutes pass"),
    ("a worker finishes", "a finished pod is deleted", "the controller crashes", "a pod is evicted"),
    ("a kubelet is away", "the controller crashes", "a connection ends", "half a minute passes"),
    ("a kubelet is away", "a pod is garbage collected", "a worker is killed", "half a minute passes"),
    ("no member reaches a controller, or all do again", "the controller crashes", "minutes pass", "a worker is killed"),
    ("a pod is deleted by force", "a member is cut off", "the clocks are set forward", "the clocks are set back"),
    ("a controller with another clock leads", "a pod is deleted by force", "minutes pass", "a member is cut off"),
    ("the clocks of nodes are off", "a supervisor crashes", "a pod is deleted", "minutes pass"),
    ("train", "a worker is killed", "a member doesn't see new files", "the newest step is deleted"),
    ("the roles change", "the user suspends or resumes", "the controller crashes", "a pod is deleted"),
)
"""Faults that make more of each other."""


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
    every = list(DRAWN)
    theme = [name for name in random.choice(THEMES) if name in DRAWN]
    names = random.choice((every, [*theme, *theme, *every], [*theme, *random.sample(every, 3)]))
    names = [*names, *random.choices(RESTARTING, k=len(names) // 2)]
    favourites = [random.randrange(TARGETS) for _ in range(2)]
    planned = random.randint(*FAULTS_IN_A_LIFE)
    injections: list[Injection] = []
    remedies: list[tuple[int, Injection]] = []
    while len(injections) < planned:
        due = [one for one in remedies if one[0] <= len(injections)]
        if due:
            remedies.remove(due[0])
            injections.append(due[0][1])
            continue
        what = random.choice(names)
        target = random.choice(favourites) if random.random() < 0.6 else random.randrange(TARGETS)
        if what in ENDING and len(injections) < planned * 0.8 and random.random() < 0.95:
            continue
        injections.append(Injection(random.choice(PAUSES), what, target, random.random() < 0.75))
        if what in REMEDIES and random.random() < 0.8:
            remedy = Injection(random.choice(PAUSES), REMEDIES[what], target)
            remedies.append((len(injections) + random.randrange(4), remedy))
    setup = random.choice(list(setups()))
    return Life(setup, seed, tuple(injections), random.randrange(5), random.random() < 0.5)


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
    size = len(life.injections) // 2
    while size:
        for at in range(0, len(life.injections), size):
            yield replace(life, injections=life.injections[:at] + life.injections[at + size :])
        size //= 2
    for at, one in enumerate(life.injections):
        simpler = [replace(one, after=after) for after in (0, one.after // 2) if after < one.after]
        for changed in [*simpler, *([replace(one, rested=False)] if one.rested else [])]:
            yield replace(life, injections=(*life.injections[:at], changed, *life.injections[at + 1 :]))
    if life.disorder:
        yield replace(life, disorder=life.disorder - 1)


def _broken(life: Life) -> ViolationError | None:
    try:
        life.run()
    except ViolationError as error:
        return error
    return None
