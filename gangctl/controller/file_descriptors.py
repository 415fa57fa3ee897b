"""File descriptors: each sidecar that is connected takes one.

The rule: the soft limit is raised to the hard one at the start, as programs do that use no ``select()``. It must not be
lowered, and a system that refuses must not keep the controller from starting.
"""

from __future__ import annotations

import logging
import resource

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
