"""What supervisors tell of the checks that they have run."""

from __future__ import annotations

from typing import Final

from gangsidecar.wire import Checked
from tests.core.world import World

ENDS: Final = {
    "fails": (1, None),
    "computes wrongly in": (4, None),
    "can't tell": (3, None),
    "is killed by": (None, 11),
    "takes too long for": (None, None),
}
"""Exit code and signal."""


def check(
    world: World, member: str, name: str, code: int | None = 0, signal: int | None = None, text: str = ""
) -> None:
    """It has run its part in the turn of now."""
    status, report = world.job.status, world.heard[world.newest(member)].report
    assert status.checks is not None
    one = Checked(status.attempt, status.checks.turn, name, 100, code, signal, text)
    world.again(member, checks=(*report.checks, one))


def check_fails(world: World, member: str, how: str, name: str, text: str | None) -> None:
    """It has not passed."""
    check(world, member, name, *ENDS[how], text or "")


def all_pass(world: World, name: str) -> None:
    """Everyone has passed who has no result yet in this turn."""
    checks = world.job.status.checks
    assert checks is not None
    for member in dict.fromkeys(pod.member for pod in world.pods.values()):
        heard = world.heard.get(world.newest(member))
        if heard is not None and all(
            (one.attempt, one.turn) != (checks.attempt, checks.turn) for one in heard.report.checks
        ):
            check(world, member, name)
