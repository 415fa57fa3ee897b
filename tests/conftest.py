"""Options of all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

PROFILE = "gangctl"
"""The same examples each time, and none fails because the machine is busy."""
settings.register_profile(
    PROFILE, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile(PROFILE)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts its background commands with SIGINT ignored, and so would be the programs that the tests interrupt."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write the outputs of scenario and golden files anew")
