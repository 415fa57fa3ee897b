"""Options of all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

PROFILE = "gangctl"
"""The same examples each time, and none fails because the machine is busy."""
settings.register_profile(
    PROFILE, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write the outputs of scenario and golden files anew")
