"""Housekeeping of this process: enough open files, and garbage collection that doesn't stop the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit to the hard one. Returns the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d instead of %d: %s", soft, hard, error)
            return soft
    log.info("at most %d open files: one for each sidecar, and some for the controller itself", hard)
    return hard


STEP_SECONDS: Final = 1.0
MIN_CONNECTIONS: Final = 256
"""Garbage of fewer connections is not worth a look at everything."""


@dataclass
class Sockets:
    """How many sidecars' connections there are, and how many have ended so far."""

    open: int = 0
    ended: int = 0


class Garbage:
    """The garbage of this process. What has ended leaves some among what is frozen, such as each TLS connection."""

    def __init__(self, sockets: Sockets) -> None:
        """``sockets``: of this process, whether it leads or relays."""
        self._sockets = sockets
        self._ended = 0
        """How many connections had ended when everything was looked at last."""

    async def collect(self) -> None:
        """Collect, until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self.step()

    def step(self) -> None:
        """Free the garbage among what is new, and all of it if there may be much."""
        if self._sockets.ended - self._ended >= max(MIN_CONNECTIONS, self._sockets.open):
            self._ended = self._sockets.ended
            gc.unfreeze()
        gc.collect()
        gc.freeze()
