"""Ranks that keep their states, against an adversary: it chooses who applies a step, who dies, who is stopped where.

A state is the list of the attempts that made its steps, so two states are equal only if their whole histories are. The
controller is the core's rule: the newest step that a rank offered as it left the attempt that ran last.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from gangclient import Restore
from gangclient._kept import Holding, givers

MEMBERS, ATTEMPTS = 4, 6
LIVE, STORE = "live", "store"
SEEDS = 3000
State = tuple[int, ...]


@dataclass
class Rank:
    """A process: it is new at first, and after it has died."""

    holding: Holding = field(default_factory=Holding)
    state: State = ()


@dataclass
class Gang:
    """All ranks, and what the adversary has met."""

    chance: random.Random
    members: list[Rank] = field(default_factory=lambda: [Rank() for _ in range(MEMBERS)])
    size: int = MEMBERS
    """So many take part in this attempt; the processes of the others stay parked."""
    saved: State | None = None
    restore: Restore | None = None
    met: set[str] = field(default_factory=set)

    @property
    def ranks(self) -> list[Rank]:
        """Those that take part."""
        return self.members[: self.size]

    def loaded(self) -> State:
        return () if self.saved is None or self.restore is None else self.saved[: self.restore.step]

    def begin(self, attempt: int) -> bool:
        """Each rank begins, as KeptState does; False: the adversary has stopped some before they had."""
        since = [one.holding.since(self.restore, LIVE) for one in self.ranks]
        is_live = self.restore is not None and self.restore.tier == LIVE
        plan = givers(since) if is_live else {}
        if is_live and any(since[at] for at in plan):
            self.met.add("an older state of this step")
        for at, one in enumerate(self.ranks):
            if self.chance.random() < 0.1:
                self.met.add("stopped before it began")
                return False
            one.holding.step = None
            if at in plan or not is_live:
                self.met.add("got the state" if is_live else "went back")
                one.state = self.ranks[plan[at]].state if is_live else self.loaded()
            if self.chance.random() < 0.1:
                self.met.add("stopped while it began")
                return False
            one.holding.begin(attempt, 0 if self.restore is None else self.restore.step)
        return True

    def train(self, attempt: int) -> None:
        """Make steps together, until one in which only some ranks get as far as to apply it."""
        for _ in range(self.chance.randrange(6)):
            assert len({one.state for one in self.ranks}) == 1, "ranks train from different states"
            assert all(one.holding.step == len(one.state) for one in self.ranks)
            whole = self.chance.random() < 0.7
            for one in self.ranks:
                if not whole and self.chance.random() < 0.5:
                    continue
                one.holding.step = None
                if not whole and self.chance.random() < 0.2:
                    one.state = (*one.state, -1)  # It is interrupted amid the change.
                    self.met.add("torn")
                    continue
                one.state = (*one.state, attempt)
                one.holding.step = len(one.state)
            if not whole:
                self.met.add("mixed" if len({len(one.state) for one in self.ranks}) > 1 else "equal")
                return
            if self.chance.random() < 0.2:
                self.saved = self.ranks[0].state

    def stop(self, attempt: int) -> None:
        """Some have died, the others offer what they have; the core decides, or a user goes back, with another size."""
        for at in range(self.size):
            if self.chance.random() < 0.3:
                self.members[at] = Rank()
        offers = {id(one): one.holding.offered(attempt, self.restore, LIVE) for one in self.ranks}
        self.size = self.chance.randint(2, MEMBERS)
        self.chance.shuffle(self.members)
        steps = [step for one in self.ranks if (step := offers.get(id(one))) is not None]
        saved = -1 if self.saved is None else len(self.saved)
        if steps and max(steps) >= saved and self.chance.random() < 0.85:
            self.restore = Restore(max(steps), "", LIVE)
        else:
            back = self.chance.randrange(saved + 1) if saved > 0 else saved
            self.restore = None if back < 0 else Restore(back, "", STORE)


def test_no_rank_ever_trains_from_a_state_that_the_others_do_not_have() -> None:
    met = set[str]()
    for seed in range(SEEDS):
        gang = Gang(random.Random(seed), met=met)
        for attempt in range(1, ATTEMPTS + 1):
            if gang.begin(attempt):
                gang.train(attempt)
            gang.stop(attempt)
    assert met >= {"mixed", "torn", "got the state", "went back", "stopped before it began", "stopped while it began"}
    assert "an older state of this step" in met


def test_each_rank_that_lacks_the_state_gets_it_from_one_that_has_it() -> None:
    assert givers([1, 1]) == {}
    assert givers([0, 4, 0, 4, 3]) == {0: 1, 2: 3, 4: 1}
    with pytest.raises(ValueError, match="no rank has it"):
        givers([0])
