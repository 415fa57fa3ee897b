from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from gangctl.controller.turns import TURN_SECONDS, Turns
from tests.wait import until_async


async def test_namespaces_take_turns_and_within_one_the_first_comes_first() -> None:
    turns, done = Turns(), list[str]()
    names = ("a1", "a2", "a3", "b1", "c1", "c2")
    await asyncio.gather(*(turns.take(name[0], partial(done.append, name)) for name in names))
    assert done == ["a1", "b1", "c1", "a2", "c2", "a3"]


async def test_however_much_waits_everything_else_is_served_after_one_turn() -> None:
    """A turn takes as long as its last piece of work takes longer than the rest of the turn."""
    turns, longest, is_over = Turns(), 0.0, asyncio.Event()

    def work() -> None:
        until = time.thread_time() + TURN_SECONDS / 2
        while time.thread_time() < until:
            pass

    async def watch() -> None:
        nonlocal longest
        while not is_over.is_set():
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(turns.take("a", work) for _ in range(100)))
    is_over.set()
    await watching
    assert longest < 4 * TURN_SECONDS, "of 250 ms of work"


async def test_what_fails_fails_where_it_was_asked_for_and_nothing_else_does() -> None:
    turns, done = Turns(), list[str]()

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    results = await asyncio.gather(
        turns.take("a", fail), turns.take("a", partial(done.append, "next")), return_exceptions=True
    )
    assert isinstance(results[0], ZeroDivisionError)
    assert done == ["next"]


async def test_what_is_cancelled_before_its_turn_is_not_done() -> None:
    turns, done = Turns(), list[str]()
    turns.take("a", partial(done.append, "cancelled")).cancel()
    await turns.take("a", partial(done.append, "next"))
    assert done == ["next"]


async def test_work_that_fails_without_a_waiter_is_logged_and_costs_no_other_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns, done = Turns(), list[str]()

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    turns.put("a", fail)
    for name in ("a", "b"):
        turns.put(name, partial(done.append, name))
    await until_async("all is done", lambda: done == ["b", "a"])
    assert "a bug" in caplog.text
