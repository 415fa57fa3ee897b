from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gangctl.cluster.kube.tokens import TokenAuthenticator
from tests.cluster.kube.auth.authentication import Authentication
from tests.cluster.kube.auth.tokens import (
    AUDIENCE,
    Issuer,
)
from tests.cluster.kube.fakeapi import serving


@pytest.fixture
async def auth() -> AsyncIterator[Authentication]:
    async with serving() as (api, client):
        issuer = Issuer()
        api.faults.append(issuer)
        yield Authentication(TokenAuthenticator(client, AUDIENCE), issuer)
