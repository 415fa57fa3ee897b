"""What the tests of traces share."""

from __future__ import annotations

import pytest

from gangctl.telemetry.tracing import otlp
from tests.wait import SECONDS


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for spans to be sent for as long as a busy machine may take."""
    monkeypatch.setattr(otlp, "CLOSE_SECONDS", SECONDS)
