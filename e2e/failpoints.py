"""Failpoints: they strike a controller at a chosen moment of a restart, before or after one of its two writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from e2e.api_proxy import Call, Fault, refusal
from e2e.controllers import Controller

WRITE_1: Final = "Gathering"
WRITE_2: Final = "Running"
OK: Final = 200


def writes(call: Call, phase: str, attempt: int) -> bool:
    """Whether this request stores this phase of this attempt."""
    status = call.status_write
    return status is not None and (status.get("phase"), status.get("attempt")) == (phase, attempt)


async def kill(controller: Controller) -> None:
    """SIGKILL, and wait for its end."""
    controller.kill()
    await controller.process.wait()


class Failpoint(Fault):
    """Strikes a controller once, before or after one of the writes of an attempt. What it strikes before is refused."""

    def __init__(
        self,
        controller: Callable[[], Controller],
        phase: str,
        *,
        after: bool,
        attempt: int = 2,
        strike: Callable[[Controller], Awaitable[None]] = kill,
    ) -> None:
        super().__init__(self._before, self._after)
        self.done = False
        self._controller, self._phase, self._is_after, self._attempt = controller, phase, after, attempt
        self._strike = strike

    def _hits(self, call: Call) -> bool:
        return not self.done and writes(call, self._phase, self._attempt)

    async def _before(self, call: Call) -> Any:
        if self._is_after or not self._hits(call):
            return None
        self.done = True
        await self._strike(self._controller())
        return refusal(503, "ServiceUnavailable", "a failpoint refuses it")

    async def _after(self, call: Call, code: int) -> None:
        if self._is_after and code == OK and self._hits(call):
            self.done = True
            await self._strike(self._controller())
