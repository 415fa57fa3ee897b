"""What goes wrong with controllers: their lives, their writes and their clocks."""

from __future__ import annotations

from tests.simulation import controller, moves
from tests.simulation.universe import Universe
from tests.simulation.values import Fault, Leader

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def _leader(u: Universe, target: int) -> Leader | None:
    return sorted(u.leaders.values(), key=lambda one: one.number)[target % len(u.leaders)] if u.leaders else None


def _crash_leader(u: Universe, target: int) -> None:
    leader = _leader(u, target)
    if leader is not None:
        controller.end(u, leader.number)


def _usurp(u: Universe, target: int) -> None:
    """A second one leads; the first is frozen, or acts on what it knew until it notices."""
    leader = _leader(u, -1)
    if leader is not None and len(u.leaders) < 2:
        u.leaders[leader.number] = leader._replace(frozen=target % 2 == 0)
        controller.begin(u)


def _thaw(u: Universe, target: int) -> None:
    leader = _leader(u, target)
    if leader is not None and leader.frozen:
        controller.thaw(u, leader.number)
    elif leader is not None and len(u.leaders) > 1:
        u.leaders[leader.number] = leader._replace(frozen=True)


def _write(outcome: controller.Write) -> Fault:
    def fault(u: Universe, _target: int) -> None:
        for number, leader in u.leaders.items():
            if leader.plan is not None:
                controller.write(u, number, outcome)
                return

    return fault


def _time(ms: int) -> Fault:
    def fault(u: Universe, target: int) -> None:
        moves.advance(u, u.now + ms * (1 + target % 4))

    return fault


def _live(ms: int) -> Fault:
    """So long no process stands still."""

    def fault(u: Universe, target: int) -> None:
        moves.live(u, u.now + ms * (1 + target % 4))

    return fault


def _set_clock_back(u: Universe, target: int) -> None:
    _step_clock(u, -1 - 15_000 * (target % 8))


def _set_clock_forward(u: Universe, target: int) -> None:
    _step_clock(u, 31_000 if target % 2 else HOUR_MS)


def _step_clock(u: Universe, ms: int) -> None:
    u.skew += ms
    for number, leader in u.leaders.items():
        u.leaders[number] = leader._replace(dirty=True)


def _succeed_with_another_clock(u: Universe, target: int) -> None:
    """The next leader's clock is a day off: longer than a life may need to come to rest."""
    for number in list(u.leaders):
        controller.end(u, number)
    _step_clock(u, DAY_MS if target % 2 else -DAY_MS)


def _lead_not(u: Universe, _target: int) -> None:
    """No controller leads, until one can again."""
    u.leaderless = not u.leaderless
    for number in list(u.leaders) if u.leaderless else ():
        controller.end(u, number)


IN_CONTROLLERS: dict[str, Fault] = {
    "the controller crashes": _crash_leader,
    "another controller leads": _usurp,
    "a controller with another clock leads": _succeed_with_another_clock,
    "no controller leads, or one does again": _lead_not,
    "a controller freezes or thaws": _thaw,
    "a status write conflicts": _write(controller.Write.CONFLICT),
    "a status write times out, stored": _write(controller.Write.TIMEOUT_STORED),
    "a status write times out, lost": _write(controller.Write.TIMEOUT_LOST),
    "the clocks are set back": _set_clock_back,
    "the clocks are set forward": _set_clock_forward,
    "a second passes": _time(700),
    "half a minute passes": _time(9_000),
    "minutes pass": _live(70_000),
    "a quarter of an hour passes": _live(300_000),
}
