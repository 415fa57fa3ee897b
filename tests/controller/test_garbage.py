"""Garbage collection in small steps: what is new is freed at once, what was frozen once there is much of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gangctl.controller.housekeeping import GROWTH, LOOK_STEPS, MIN_FROZEN, Garbage


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def cycle() -> tuple[Node, weakref.ref[Node]]:
    node = Node()
    return node, weakref.ref(node)


def test_a_new_cycle_is_freed_at_once() -> None:
    node, found = cycle()
    del node
    Garbage().step()
    assert found() is None


def test_an_old_cycle_is_freed_once_much_has_been_frozen_since() -> None:
    garbage = Garbage()
    garbage.step()
    node, found = cycle()
    garbage.step()
    del node
    for _ in range(2 * LOOK_STEPS):
        garbage.step()
    assert found() is not None, "so little is not worth a look at everything"
    kept = [Node() for _ in range(gc.get_freeze_count() + MIN_FROZEN)]
    for _ in range(2 * LOOK_STEPS):
        garbage.step()
    assert found() is None
    assert kept


def test_garbage_among_what_is_frozen_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def unfreeze() -> None:
        nonlocal looks
        looks += 1
        thaw()

    thaw, garbage = gc.unfreeze, Garbage()
    monkeypatch.setattr(gc, "unfreeze", unfreeze)
    garbage.step()
    most = gc.get_freeze_count()
    for _ in range(5 * LOOK_STEPS):
        waiting = [Node() for _ in range(MIN_FROZEN // 4)]
        garbage.step()  # They are frozen, and are garbage from now on.
        del waiting
    assert gc.get_freeze_count() < GROWTH * most + (LOOK_STEPS + 5) * MIN_FROZEN
    assert 1 < looks < 2 * LOOK_STEPS


def test_a_step_looks_only_at_what_is_new() -> None:
    garbage = Garbage()
    kept = [Node() for _ in range(1000)]
    garbage.step()
    assert len(kept) == 1000
    assert not any(isinstance(one, Node) for one in gc.get_objects())
