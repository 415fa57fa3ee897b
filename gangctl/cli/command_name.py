"""Under which name this program was called: as itself, or by kubectl as its plugin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

PLUGIN: Final = "kubectl gang"
_FILE: Final = "kubectl-gang"


def command_name() -> str:
    """``gangctl``, or ``kubectl gang``: what the user types."""
    return PLUGIN if Path(sys.argv[0]).name.startswith(_FILE) else "gangctl"


def is_plugin() -> bool:
    """Whether kubectl called: then a cluster is meant."""
    return command_name() == PLUGIN
