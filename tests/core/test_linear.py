"""The work of a decision grows with the members, and no faster: instructions are counted, no time is taken."""

from __future__ import annotations

import sys
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
