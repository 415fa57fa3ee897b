"""Garbage collection in small steps: what is new is freed at once, what was frozen when many connections have ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gangctl.controller.housekeeping import MIN_CONNECTIONS, Garbage, Sockets


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
    Garbage(Sockets()).step()
    assert found() is None


def test_an_old_cycle_is_freed_once_many_connections_have_ended() -> None:
    sockets = Sockets()
    garbage = Garbage(sockets)
    node, found = cycle()
    garbage.step()
    del node
    sockets.ended = MIN_CONNECTIONS - 1
    garbage.step()
    assert found() is not None
    sockets.ended = MIN_CONNECTIONS
    garbage.step()
    assert found() is None


def test_everything_is_looked_at_once_for_so_many_ends() -> None:
    sockets = Sockets()
    garbage = Garbage(sockets)
    sockets.ended = MIN_CONNECTIONS
    garbage.step()
    node, found = cycle()
    garbage.step()
    del node
    garbage.step()
    assert found() is not None
    sockets.ended = 2 * MIN_CONNECTIONS
    garbage.step()
    assert found() is None


def test_a_step_looks_only_at_what_is_new() -> None:
    garbage = Garbage(Sockets())
    kept = [Node() for _ in range(1000)]
    garbage.step()
    assert len(kept) == 1000
    assert not any(isinstance(one, Node) for one in gc.get_objects())
