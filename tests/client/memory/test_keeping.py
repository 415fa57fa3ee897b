"""Which steps stay in memory: every order in which ranks save and messages come is looked at."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import NamedTuple, TypeVar

import pytest

from gangclient.memory._keeping import REMEMBERED, Keeper, Ledger, StepVerdict

T = TypeVar("T", Keeper, Ledger)


class Rank(NamedTuple):
    """One rank: what it has, and what is on its way from it and to it, in order."""

    keeper: Keeper
    at: int
    whole: frozenset[int]
    said: tuple[tuple[int, bool], ...]
    told: tuple[StepVerdict, ...]


class World(NamedTuple):
    """A gang in the middle of an attempt."""

    ranks: tuple[Rank, ...]
    ledger: Ledger
    safe: frozenset[int]

    @property
    def key(self) -> object:
        """What the rest of its life depends on."""
        ledger = sorted((step, tuple(sorted(had))) for step, had in self.ledger._kept.items())  # noqa: SLF001
        ranks = [
            (one.keeper.safe, one.keeper.pending, tuple(one.keeper._dead), one.at, one.whole, one.said, one.told)  # noqa: SLF001
            for one in self.ranks
        ]
        return tuple(ranks), tuple(ledger), tuple(self.ledger._judged), self.safe  # noqa: SLF001


def begin(count: int) -> World:
    return World(tuple(Rank(Keeper(None), 0, frozenset(), (), ()) for _ in range(count)), Ledger(count), frozenset())


def _copied(rules: T) -> T:
    """With lists, sets and maps of its own: deepcopy takes ten times as long."""
    made = copy(rules)
    for name, value in vars(rules).items():
        if isinstance(value, list):
            setattr(made, name, list(value))
        elif isinstance(value, dict):
            setattr(made, name, {key: set(one) if isinstance(one, set) else one for key, one in value.items()})
    return made


def following(world: World, steps: int, *, mistaken: bool) -> list[World]:
    """Every next moment: a rank comes to its next step, fails to write it or not, or a message arrives."""
    found: list[World] = []
    for number, old in enumerate(world.ranks):
        slowest = min(one.at for one in world.ranks)
        if old.at < steps and old.at == slowest:  # Each step has a collective: none is ahead by more than one.
            for fails in (False, True):
                one = old._replace(keeper=_copied(old.keeper))
                step, takes = one.at + 1, one.keeper.takes(one.at + 1)
                if fails and not takes:
                    continue
                if mistaken and not takes:  # It drops what it has to make room for the newest step.
                    one = one._replace(whole=frozenset())
                    one.keeper.pending, takes = step, True
                if takes and not fails:
                    one = one._replace(whole=one.whole | {step}, said=(*one.said, (step, True)))
                else:
                    if takes:
                        one.keeper.take_verdict(StepVerdict(step, safe=False))
                    one = one._replace(said=(*one.said, (step, False)))
                found.append(_with(world, number, one._replace(at=step)))
        if old.said:
            found.append(_heard(world, number))
        if old.told:
            one, verdict = old._replace(keeper=_copied(old.keeper)), old.told[0]
            one.keeper.take_verdict(verdict)
            whole = frozenset(step for step in one.whole if not verdict.ends(step))
            found.append(_with(world, number, one._replace(whole=whole, told=old.told[1:])))
    return found


def _with(world: World, number: int, rank: Rank) -> World:
    ranks = tuple(rank if at == number else one for at, one in enumerate(world.ranks))
    return world._replace(ranks=ranks)


def _heard(world: World, number: int) -> World:
    """The directory hears of a step."""
    ledger, one = _copied(world.ledger), world.ranks[number]
    (step, kept), rest = one.said[0], one.said[1:]
    verdict = ledger.note(number, step, kept=kept)
    ranks = tuple(old._replace(said=rest) if at == number else old for at, old in enumerate(world.ranks))
    if verdict is None:
        return world._replace(ranks=ranks, ledger=ledger)
    told = tuple(old._replace(told=(*old.told, verdict)) for old in ranks)
    return World(told, ledger, world.safe | {step} if verdict.safe else world.safe)


def explore(count: int, steps: int, *, mistaken: bool = False) -> tuple[int, list[World]]:
    """Every state that so many ranks can get into within so many steps; returns how many, and how they can end.

    Raises:
        AssertionError: a step was safe, and now there is none that all have.
    """
    first = begin(count)
    seen, waiting, ends = {first.key}, deque([first]), list[World]()
    while waiting:
        world = waiting.popleft()
        common = frozenset.intersection(*(one.whole for one in world.ranks))
        newest = max(world.safe, default=None)
        assert newest is None or any(step >= newest for step in common), f"step {newest} was safe: {world}"
        after = following(world, steps, mistaken=mistaken)
        if not after:
            ends.append(world)
        for one in after:
            if one.key not in seen:
                seen.add(one.key)
                waiting.append(one)
    return len(seen), ends


@pytest.mark.timeout(600)  # 120,000 states: seconds, unless the machine is busy
@pytest.mark.parametrize(
    ("count", "steps"), [(1, 5), *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((2, 3), (3, 2)))]
)
def test_there_is_always_a_step_that_all_ranks_have_once_one_was_safe(count: int, steps: int) -> None:
    states, ends = explore(count, steps)
    assert states > len(ends) > 1
    for end in ends:
        assert len({one.whole for one in end.ranks}) == 1, "in the end all have the same"
        assert all(one.keeper.pending is None for one in end.ranks), "no rank waits for a step that can't come"


def test_the_search_finds_a_rank_that_makes_room_too_early() -> None:
    with pytest.raises(AssertionError, match="was safe"):
        explore(2, 3, mistaken=True)


def test_a_restored_step_is_safe_from_the_beginning() -> None:
    keeper = Keeper(100)
    assert keeper.takes(110)
    assert not keeper.takes(120)
    keeper.take_verdict(StepVerdict(110, safe=True))
    assert (keeper.safe, keeper.pending) == (110, None)


def test_what_is_remembered_of_dead_steps_is_bounded() -> None:
    keeper, ledger = Keeper(None), Ledger(2)
    for step in range(3 * REMEMBERED):
        assert ledger.note(0, step, kept=False) == StepVerdict(step, safe=False)
        assert ledger.note(1, step, kept=False) is None, "it is told once"
        keeper.take_verdict(StepVerdict(step, safe=False))
    assert len(keeper._dead) == REMEMBERED  # noqa: SLF001 - it has no other sign
    assert len(ledger._judged) == REMEMBERED  # noqa: SLF001
    assert not keeper.takes(3 * REMEMBERED - 1)
    assert keeper.takes(3 * REMEMBERED)
