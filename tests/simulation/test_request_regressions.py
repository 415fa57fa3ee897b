"""What a user asks for with a restart, told as short stories: it counts once, and what it undid stays undone."""

from __future__ import annotations

from typing import Literal

from gangctl.api.recovery import RestartFrom
from gangctl.api.status import GangPhase
from tests.simulation.lives import Run, settle
from tests.simulation.test_disk_regressions import restored, step
from tests.simulation.test_regressions import go_on, is_in, kill, running
from tests.simulation.universe import Universe


def trained(setup: str, steps: int) -> Universe:
    """A gang of two that has saved so many steps."""
    u = running(setup)
    for _ in range(steps):
        step(u, "worker-0.0", "worker-1.0")
    go_on(u)
    return u


def ask(u: Universe, kind: Literal["Beginning", "Step"], number: int | None = None) -> None:
    """``gangctl restart --from-beginning`` or ``--from-step``."""
    u.change_spec(restart_token="again", restart_from=RestartFrom(type=kind, step=number, restart_token="again"))
    settle(Run(u))


def test_the_step_that_a_user_asks_for_counts_once() -> None:
    u = trained("pair", 3)
    ask(u, "Step", 2)
    assert restored(u) == 2
    step(u, "worker-0.0", "worker-1.0")
    step(u, "worker-0.0", "worker-1.0")
    go_on(u)
    kill(u, "worker-0.0")
    settle(Run(u))
    assert is_in(u, GangPhase.RUNNING, 3)
    assert restored(u) == 4


def test_a_start_from_the_beginning_undoes_the_steps_of_before() -> None:
    u = trained("pair", 3)
    ask(u, "Beginning")
    assert restored(u) == 0
    kill(u, "worker-0.0")
    settle(Run(u))
    assert is_in(u, GangPhase.RUNNING, 3)
    assert restored(u) == 0
