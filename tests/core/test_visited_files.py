"""How many files one decision visits: a person who follows it opens as many."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gangctl.core.lifecycle.decide import decide
from tests.core.scenario import sentence
from tests.core.world import World

ROOT: Final = Path(__file__).parents[2]
MOST: Final = 25
"""It may only go down."""


def visited(*sentences: str) -> list[str]:
    """The files of the product that the next decision visits, after these sentences."""
    world = World()
    for line in sentences:
        sentence(world, line)
    observed, found = world.observed(), set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    before = sys.gettrace()
    sys.settrace(note)
    try:
        decide(world.now, world.job, observed)
    finally:
        sys.settrace(before)
    product = (f"{ROOT}/gangctl/", f"{ROOT}/sidecar/", f"{ROOT}/client/")
    return sorted(each.removeprefix(f"{ROOT}/") for each in found if each.startswith(product))


def test_the_write_that_opens_an_incident_visits_few_files() -> None:
    assert len(visited("the gang runs", "everyone runs", "worker-1 ends with 1")) <= MOST


def test_the_write_that_starts_an_attempt_visits_few_files() -> None:
    assert len(visited("the gang runs", "everyone runs", "worker-1 ends with 1", "decide", "everyone is Ready")) <= MOST
