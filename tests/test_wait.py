"""The helper that waits for conditions returns what was found, and names what was missed."""

from __future__ import annotations

import asyncio

import pytest

from tests.wait import until, until_async


def test_until_returns_the_first_true_value() -> None:
    values = iter([None, 0, "", "found"])
    assert until("a value", lambda: next(values), every=0) == "found"


def test_until_names_the_condition_that_did_not_hold() -> None:
    with pytest.raises(TimeoutError, match=r"a value: not within 0 s; the condition found \[\]"):
        until("a value", list, seconds=0, every=0)


async def test_until_async_takes_a_function_and_a_coroutine_function() -> None:
    values = iter([0, 1, 0, 2])

    async def value() -> int:
        return next(values)

    assert await until_async("a value", lambda: next(values), every=0) == 1
    assert await until_async("a value", value, every=0) == 2


async def test_until_async_ends_a_condition_that_hangs() -> None:
    with pytest.raises(TimeoutError, match="an answer: not within"):
        await until_async("an answer", asyncio.Event().wait, seconds=0.01)


async def test_until_async_passes_on_a_timeout_of_the_condition() -> None:
    async def broken() -> bool:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await until_async("an answer", broken)
