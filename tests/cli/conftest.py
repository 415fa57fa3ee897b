from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.here import Here, here


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Here]:
    with here(tmp_path) as one:
        yield one
