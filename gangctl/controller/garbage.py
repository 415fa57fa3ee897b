"""Garbage collection in small steps: a full one stops the loop for over a second with 10,000 connections.

The rule: what has survived a step is frozen, so the next one looks only at what is new. A cycle that ends after that is
not found; connections leave some. So once as many have ended as are open, one step looks at everything.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from gangctl.controller.connections import Connections

STEP_SECONDS: Final = 1.0
FEW: Final = 256
"""Garbage of fewer connections is not worth a look at everything."""


class Garbage:
    """The garbage of this process."""

    def __init__(self, connections: Connections) -> None:
        """``connections``: those of this process's hub."""
        self._connections = connections
        self._ended = 0
        """How many connections had ended when everything was looked at last."""

    async def collect(self) -> None:
        """Collect, until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self.step()

    def step(self) -> None:
        """Free the garbage among what is new, and all of it if there may be much."""
        if self._connections.ended - self._ended >= max(FEW, len(self._connections)):
            self._ended = self._connections.ended
            gc.unfreeze()
        gc.collect()
        gc.freeze()
