"""The page of the controller of a state directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import aiohttp

from gangctl.api.snapshot import Endpoint
from gangctl.cli.errors import UserError
from gangctl.cli.page.proxy import LIMITS
from gangctl.cluster.local.layout import StateDirectory


class LocalController:
    """The controller that runs at this moment: after it was restarted it has another address and another token."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask it for a path."""
        try:
            endpoint = Endpoint.model_validate_json(self._state.live.read_bytes())
        except (OSError, ValueError):
            raise UserError(
                f"no controller runs for {self._state.path}: gangctl run FILE starts one with a gang"
            ) from None
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        async with (
            aiohttp.ClientSession(timeout=LIMITS) as session,
            session.get(urljoin(endpoint.url, path), headers=headers) as answer,
        ):
            yield answer
