"""No decision asks to be repeated at once: where nothing changes, few decisions follow from the times it asks for."""

from __future__ import annotations

import pytest

from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle.plan import wait
from gangctl.words.decisions import submitted_suspended
from tests.core.scenario import parse, sentence
from tests.core.test_scenarios import FILES
from tests.core.world import World
from tests.effort import NIGHTLY

SECONDS, AT_MOST, PARTS = 2.0, 6, 6


def _decisions(world: World) -> int:
    """How many follow within a while from the times that plans ask for. What they do isn't done."""
    until, count = world.now + SECONDS, 0
    while world.now < until and count <= AT_MOST:
        plan = world.plan()
        count += 1
        if plan.status is not None:
            world.apply(plan)
        elif plan.requeue_after is None:
            break
        else:
            world.now += plan.requeue_after
    return count


@pytest.mark.parametrize("part", range(PARTS if NIGHTLY else 1))
def test_no_plan_of_a_scenario_asks_to_be_repeated_at_once(part: int) -> None:
    for path in FILES[part::PARTS]:
        world = World()
        for block in parse(path.read_text()):
            lines = [line for line in block.given.splitlines() if not line.startswith("#")]
            if lines[0].strip() == "job":
                world.submit("\n".join(lines[1:]))
                continue
            for line in lines:
                sentence(world, line.strip())
            now = world.now
            assert _decisions(world) <= AT_MOST, f"{path.name}, after {lines[-1]!r}: {world.plan().because}"
            world.now = now


def test_a_time_that_has_passed_asks_for_nothing() -> None:
    world = World()
    gang = Gang(world.now, world.job, world.observed())
    assert wait(gang, submitted_suspended(), [world.now - 1, world.now]).requeue_after is None
    assert wait(gang, submitted_suspended(), [world.now - 1, world.now + 9, None]).requeue_after == pytest.approx(9.0)
