"""Housekeeping of this process: enough open files, and garbage collection that doesn't stop the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
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
LOOK_STEPS: Final = 10
"""To count the frozen objects takes milliseconds, where they are a million."""
GROWTH: Final = 1.25
MIN_FROZEN: Final = 10_000
"""So few more are not worth a look at everything."""


class Garbage:
    """The garbage of this process. What has ended leaves some among what is frozen, such as each TLS connection."""

    def __init__(self) -> None:
        self._steps = 0
        self._most = 0
        """With so many frozen objects, everything is looked at."""

    async def collect(self) -> None:
        """Collect, until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self.step()

    def step(self) -> None:
        """Free the garbage among what is new, and all of it if there may be much."""
        looks = self._steps % LOOK_STEPS == 0 and gc.get_freeze_count() >= self._most
        self._steps += 1
        if looks:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        if looks:
            self._most = max(round(gc.get_freeze_count() * GROWTH), gc.get_freeze_count() + MIN_FROZEN)
