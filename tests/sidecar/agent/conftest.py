"""A folder for each test."""

from __future__ import annotations

import pytest

from tests.sidecar.agent.sidecars import folder

directory = pytest.fixture(folder)
