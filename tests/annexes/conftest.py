"""A fake API server, for the controllers that the annexes run in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.kube.fakeapi import FakeApi, serving


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving() as (found, _):
        yield found
