"""How much a run tries: a sixth of the examples at each landing, all of them with GANGCTL_NIGHTLY=1 (make nightly).

With GANGCTL_FUZZ=N (make fuzz) N times as many, and others each time.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.conftest import PROFILE

NIGHTLY = os.environ.get("GANGCTL_NIGHTLY") == "1"
FUZZ = int(os.environ.get("GANGCTL_FUZZ", "0"))


def tries(most: int) -> int:
    """Return how many of ``most`` examples this run tries."""
    if FUZZ:
        return most * FUZZ
    return most if NIGHTLY else most // 6


def examples(most: int) -> settings:
    """Hypothesis' settings for a test that tries so many examples at most."""
    return settings(settings.get_profile(PROFILE), max_examples=tries(most), derandomize=not FUZZ)
