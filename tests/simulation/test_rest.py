"""A gang comes to rest within what its spec allows, though containers have ended that can't be started again."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from random import Random

import pytest

from tests.effort import NIGHTLY, tries
from tests.simulation.engine import plain
from tests.simulation.faults import DEAD, FAULTS
from tests.simulation.lives import Injection, Run, settle
from tests.simulation.moves import live
from tests.simulation.seeds import drawn
from tests.simulation.setups import LARGE, SMALL, setups
from tests.simulation.universe import Universe, new_universe

LIVES = 20
pytestmark = pytest.mark.timeout(900)  # Minutes of work; other work on the machine may multiply it.


def _running(setup: str) -> Universe:
    run = Run(new_universe(setups()[setup], plain()))
    settle(run)
    return run.universe


def test_drawn_lives_with_dead_containers_come_to_rest() -> None:
    for seed in range(tries(LIVES)):
        random, life = Random(seed), drawn(seed)
        if life.setup == LARGE:
            continue
        injections = list(life.injections)
        for _ in range(3):
            injections.insert(
                random.randrange(len(injections)), Injection(random.randrange(20), DEAD, random.randrange(9))
            )
        replace(life, injections=tuple(injections)).run()


def test_a_gang_runs_again_though_containers_have_ended_for_good() -> None:
    befores = ("", "a worker is killed", "the controller crashes")
    afters = ("", "the user asks for a restart", "the controller crashes")
    stories = product(SMALL, befores, afters)
    for setup, before, after in stories if NIGHTLY else islice(stories, 0, None, 7):
        u = _running(setup)
        for fault in filter(None, (before, DEAD, after)):
            FAULTS[fault](u, 1)
            live(u, u.now + 100)
        settle(Run(u))


def test_a_gang_of_dead_containers_alone_comes_to_rest() -> None:
    for setup in SMALL:
        u = _running(setup)
        for target in range(len(u.boxes)):
            FAULTS[DEAD](u, target)
        settle(Run(u))
