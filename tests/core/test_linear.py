"""The work of a decision grows with the members, and no faster.

Instructions are counted. One may be a loop in C, over all members, so that processor time is compared as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from bench.decide import CASES, NOW
from gangctl.core.lifecycle.decide import decide

SIZE = 300
MOST = 2.5
"""Twice the members take about twice the work."""


class Work:
    """How many bytecode instructions were executed: a comprehension counts as what it does."""

    def __init__(self) -> None:
        self.done = 0

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """Count one instruction; ask for those of each function that is called."""
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.done += event == "opcode"
        return self.trace


@contextmanager
def counted() -> Iterator[Work]:
    """Count the work that is done within."""
    work = Work()
    before = sys.gettrace()
    sys.settrace(work.trace)
    try:
        yield work
    finally:
        sys.settrace(before)


def work_of(name: str, members: int) -> int:
    """The work of one decision; the gang's layout is known by then."""
    given, world = CASES[name](members)
    decide(NOW, given, world)
    with counted() as work:
        decide(NOW, given, world)
    return work.done


@pytest.mark.parametrize("name", CASES)
def test_twice_the_members_are_twice_the_work(name: str) -> None:
    assert work_of(name, 2 * SIZE) < MOST * work_of(name, SIZE)


def seconds_of(name: str, members: int) -> float:
    """The least processor time of some decisions."""
    given, world = CASES[name](members)

    def once() -> float:
        began = time.process_time()
        decide(NOW, given, world)
        return time.process_time() - began

    return min(once() for _ in range(7))


@pytest.mark.parametrize("name", CASES)
def test_eight_times_the_members_take_no_more_than_thrice_as_much_time_each(name: str) -> None:
    """A square would take eight times as much each: so much that no other program on the machine hides it."""
    assert seconds_of(name, 8 * SIZE) < 3 * 8 * seconds_of(name, SIZE)
