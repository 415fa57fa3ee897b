"""Lives of gangs drawn by a seed: for long runs and for mutants. Hypothesis draws its own, and shrinks them better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DRAWN
from tests.simulation.lives import Injection, Run, simulate
from tests.simulation.parking import FAULTS, SCRIPTS_PARK
from tests.simulation.relayed import FAULTS as RELAY_FAULTS
from tests.simulation.relayed import REPLICAS_RELAY
from tests.simulation.setups import LARGE, SMALL
from tests.simulation.themes import CROWD, ENDING, POLICY, REMEDIES, RESTARTING, THEMES, Theme
from tests.simulation.violations import ViolationError

TARGETS = 64
PAUSES = (0, 0, 0, 1, 2, 3, 5, 8, 13, 20, 40)
MEMBERS = 3
SOON = (0, 0, 1, 3, 5, 8, 13)
FAULTS_IN_A_LIFE = (24, 60)
FAULTS_OF_A_CROWD = (8, 16)
CROWDED = 0.05
"""So many lives are those of large gangs: a move of them is dear."""
PARKING = 0.3
"""So many lives are those of scripts that restart inside their processes, and so many faults in these hit such."""
WHILE_PARKING = tuple(name for name in FAULTS if name != SCRIPTS_PARK)
RELAYING = 0.3
"""So many faults in the lives of gangs whose replicas relay hit these."""
WHILE_RELAYING = (
    *(name for name in RELAY_FAULTS if name != REPLICAS_RELAY),
    *("another controller leads", "the controller crashes", "a controller freezes or thaws"),
)
TOLD = 0.12
"""How often a story is told instead of a single fault."""


@dataclass(frozen=True)
class Life:
    """Everything that makes one simulated run what it is."""

    setup: str
    seed: int
    injections: tuple[Injection, ...]
    disorder: int
    warm: bool
    policies: int | None = None
    """The seed of the gang's policies; None = its own."""

    def run(self) -> Run:
        """Live it.

        Raises:
            ViolationError: an invariant doesn't hold.
        """
        return simulate(
            self.setup,
            self.seed,
            self.injections,
            disorder=self.disorder,
            warm=self.warm,
            policies=self.policies,
        )


def drawn(seed: int) -> Life:
    """The life of this seed: the same as long as faults and setups are the same."""
    random = Random(seed)
    if random.random() < CROWDED:
        return _crowded(seed, random)
    theme = random.choice(THEMES)
    known = [name for name in theme.faults if name in DRAWN]
    every = list(DRAWN)
    names = random.choice((every, [*known, *known, *every], [*known, *random.sample(every, 3)]))
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
        if theme.is_story and random.random() < TOLD:
            injections += _told(theme, random)
            continue
        what = random.choice(names)
        target = random.choice(favourites) if random.random() < 0.6 else random.randrange(TARGETS)
        if what in ENDING and len(injections) < planned * 0.8 and random.random() < 0.95:
            continue
        injections.append(Injection(random.choice(PAUSES), what, target, random.random() < 0.75))
        if what in REMEDIES and random.random() < 0.8:
            remedy = Injection(random.choice(PAUSES), REMEDIES[what], target)
            remedies.append((len(injections) + random.randrange(4), remedy))
    setup = random.choice(theme.setups or SMALL)
    life = Life(setup, seed, tuple(injections), random.randrange(5), random.random() < 0.5)
    return _parking(life, random) if random.random() < PARKING else life


def with_any_policies(seed: int) -> Life:
    """The same life of a gang whose policies are drawn, too."""
    return replace(drawn(seed), policies=seed)


def with_relays(seed: int) -> Life:
    """The same life of a gang whose controller has replicas that relay."""
    return _mixed(drawn(seed), Random(seed), REPLICAS_RELAY, WHILE_RELAYING, RELAYING)


def _parking(life: Life, random: Random) -> Life:
    """The same life, of scripts that restart inside their processes."""
    return _mixed(life, random, SCRIPTS_PARK, WHILE_PARKING, PARKING)


def _mixed(life: Life, random: Random, first: str, others: Sequence[str], share: float) -> Life:
    """The same life after a first event, with other faults in between."""
    injections = [Injection(0, first)]
    for one in life.injections:
        injections.append(one)
        if random.random() < share:
            what = random.choice(others)
            injections.append(Injection(random.choice(SOON), what, random.randrange(TARGETS)))
    return replace(life, injections=tuple(injections))


def _told(theme: Theme, random: Random) -> list[Injection]:
    """The faults of a story, one soon after the other: one member's, and another's is what ends the attempt."""
    one, any_one = random.randrange(MEMBERS), random.randrange(TARGETS)
    aims = {**dict.fromkeys(RESTARTING, one + 1), **dict.fromkeys(POLICY, any_one)}
    told = [Injection(random.choice(SOON), what, aims.get(what, one)) for what in theme.faults]
    return [replace(told[0], rested=True), *told[1:], *(Injection(0, what, one) for what in theme.remedies)]


def _crowded(seed: int, random: Random) -> Life:
    """A short life of a large gang, with faults that hit all of its members at once."""
    faults: list[Injection] = []
    for _ in range(random.randint(*FAULTS_OF_A_CROWD)):
        faults.append(Injection(random.choice(SOON), random.choice(CROWD), random.randrange(TARGETS), rested=True))
        if random.random() < 0.7:
            faults.append(Injection(0, "minutes pass"))  # So many members need many moves.
    return Life(LARGE, seed, tuple(faults), random.randrange(3), warm=True)


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
    if life.policies is not None:
        yield replace(life, policies=None)


def _broken(life: Life) -> ViolationError | None:
    try:
        life.run()
    except ViolationError as error:
        return error
    return None
