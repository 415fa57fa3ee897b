"""A template that imports beside training takes processors that nothing else waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gangsidecar.start import template
from gangsidecar.start.template import LOOK_SECONDS, PACE, Pacer


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pacer's sleeps."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def work(seconds: float) -> None:
    """Use a processor for so long."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def pressure(path: Path, seconds: float) -> None:
    path.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={seconds * 1e6:.0f}\nfull avg10=0.00 total=0\n")


@pytest.mark.parametrize(("waits", "is_slow"), [(0.0, False), (60.0, True)])
def test_imports_are_slow_only_while_tasks_wait(
    waits: float, *, is_slow: bool, slept: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.pressure"
    monkeypatch.setattr(template, "PRESSURES", ("/nowhere", str(file)))
    pressure(file, 7.0)
    pacer = Pacer()
    work(LOOK_SECONDS)
    pressure(file, 7.0 + waits)
    assert pacer.find_spec("module") is None
    assert bool(slept) is is_slow
    if is_slow:
        assert slept[0] >= LOOK_SECONDS * (1 / PACE - 1)


def test_a_kernel_that_counts_nothing_is_spared(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "PRESSURES", ())
    pacer = Pacer()
    pacer.find_spec("short")
    assert not slept
    work(LOOK_SECONDS)
    pacer.find_spec("long")
    assert slept
