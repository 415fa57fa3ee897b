from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from gangctl.controller import housekeeping
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert housekeeping.raise_limit() == hard
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
assert housekeeping.raise_limit() == hard
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
