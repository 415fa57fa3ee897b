"""Failpoints: they strike a controller at a chosen moment, before or after one of its requests.

Of a restart, these are its two writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from e2e.api_proxy import Call, Fault, refusal
from e2e.controllers import Controller

WRITE_1: Final = "Gathering"
WRITE_2: Final = "Running"
ERRORS: Final = 300
"""The least status code of a request that stored nothing."""

Hits = Callable[[Call], bool]
"""Whether this request is the moment."""


def writes(phase: str, attempt: int = 2) -> Hits:
    """The request that stores this phase of this attempt of a gang."""

    def hits(call: Call) -> bool:
        status = call.status_write
        return status is not None and (status.get("phase"), status.get("attempt")) == (phase, attempt)

    return hits


def sends(method: str, path: str, holds: Callable[[Any], bool] = bool) -> Hits:
    """The request of this method whose path ends so, as a regular expression, and for whose document this holds."""

    def hits(call: Call) -> bool:
        return call.method == method and bool(re.search(f"{path}$", call.path)) and holds(json.loads(call.body))

    return hits


async def kill(controller: Controller) -> None:
    """SIGKILL, and wait for its end."""
    controller.kill()
    await controller.process.wait()


class Failpoint(Fault):
    """Strikes a controller once, before or after one of its requests. What it strikes before is refused."""

    def __init__(
        self,
        controller: Callable[[], Controller],
        hits: Hits,
        *,
        after: bool,
        strike: Callable[[Controller], Awaitable[None]] = kill,
    ) -> None:
        super().__init__(self._before, self._after)
        self.done = False
        self._controller, self._is_moment, self._is_after, self._strike = controller, hits, after, strike

    def _hits(self, call: Call) -> bool:
        return not self.done and self._is_moment(call)

    async def _before(self, call: Call) -> Any:
        if self._is_after or not self._hits(call):
            return None
        self.done = True
        await self._strike(self._controller())
        return refusal(503, "ServiceUnavailable", "a failpoint refuses it")

    async def _after(self, call: Call, code: int) -> None:
        if self._is_after and code < ERRORS and self._hits(call):
            self.done = True
            await self._strike(self._controller())
