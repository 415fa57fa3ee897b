"""The clock of a term does not jump when the wall clock is set."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gangctl.cluster import clock


@pytest.fixture(autouse=True)
def new_term() -> Iterator[None]:
    yield
    clock.begin_term()


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_wall_clock_shows_in_the_next_term(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    clock.begin_term()
    before, moment = clock.now(), clock.elapsed()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: real() + step)
        assert clock.now() == pytest.approx(before, abs=5)
        assert clock.time_of(moment) == pytest.approx(before, abs=1)
        clock.begin_term()
        assert clock.now() == pytest.approx(before + step, abs=5)
