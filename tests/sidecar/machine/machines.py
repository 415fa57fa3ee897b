"""A machine with its time, and the messages that drive it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gangsidecar import wire
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    Parkable,
    Parked,
    PodIdentity,
    PortsFound,
    Started,
    State,
    Tick,
    TreeGone,
)
from gangsidecar.wire import (
    Checkpoint,
    Directive,
    Phase,
    Process,
    Run,
    Verb,
)

IDENTITY = PodIdentity(gang="g1", member="worker-0", incarnation=0, pod="p1", address="10.0.0.1")


GRACE = 1_000


class Driver:
    """A machine with its time and the effects since last looked at."""

    def __init__(self, state: State | None = None) -> None:
        self.now = 1_000
        self.state = state or machine.start_session(IDENTITY, "s1", self.now)
        self.effects: list[machine.Effect] = []

    def feed(self, *events: machine.Input, after: int = 0) -> list[machine.Effect]:
        self.now += after
        self.effects = []
        for event in events:
            self.state, effects = machine.step(self.state, self.now, event)
            self.effects += effects
        return self.effects

    @property
    def report(self) -> wire.Report:
        return machine.report(self.state, self.now, 1)

    def phase(self) -> Phase:
        return self.report.phase

    def sleep(self) -> list[machine.Effect]:
        due = machine.deadline(self.state)
        assert due is not None
        self.now = max(due, self.now)
        return self.feed(Tick())


def hold(attempt: int, **more: object) -> Directive:
    return replace(Directive("g1", "p1", attempt, Verb.HOLD, grace_ms=GRACE), **more)  # type: ignore[arg-type]


def run(attempt: int, session: str = "s1", processes: int = 1, **more: object) -> Directive:
    started = tuple(Process(local_rank=at, env=(), rank=10 + at) for at in range(processes))
    return Directive("g1", "p1", attempt, Verb.RUN, grace_ms=GRACE, run=replace(Run(session, started), **more))  # type: ignore[arg-type]


def finish(attempt: int) -> Directive:
    return Directive("g1", "p1", attempt, Verb.FINISH, grace_ms=GRACE)


def ready(attempt: int = 1) -> Driver:
    driver = Driver()
    driver.feed(hold(attempt), PortsFound(attempt, (29400,)))
    assert driver.phase() is Phase.READY
    return driver


def running(attempt: int = 1, processes: int = 1) -> Driver:
    driver = ready(attempt)
    driver.feed(run(attempt, processes=processes), Started())
    assert driver.phase() is Phase.RUNNING
    return driver


def restarted(attempt: int, **more: object) -> Driver:
    """Ready at ``attempt + 1`` after a worker of ``attempt`` was stopped."""
    driver = running(attempt)
    driver.feed(Checkpoint("ram", 10, 10, attempt), Checkpoint("ram", 20, 10, attempt))
    driver.feed(hold(attempt + 1, **more), Exited(0, signal=15), TreeGone(), PortsFound(attempt + 1, ()))
    assert driver.phase() is Phase.READY
    return driver


def stopping(processes: int = 2, can: int | None = None, **more: Any) -> Driver:
    """Attempt 1 is being stopped; the first ``can`` processes can park."""
    driver = running(processes=processes)
    driver.feed(*(Parkable(at) for at in range(processes if can is None else can)))
    driver.feed(hold(2, **more))
    return driver


def parked(processes: int = 2, **more: Any) -> Driver:
    """All processes of attempt 1 have parked, and attempt 2 can begin."""
    driver = stopping(processes, **more)
    driver.feed(*(Parked(at, 1) for at in range(processes)), TreeGone(), PortsFound(2, (29400,)))
    assert driver.phase() is Phase.READY
    return driver
