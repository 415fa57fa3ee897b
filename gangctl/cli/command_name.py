"""The name that this program was called by: gangctl, or kubectl gang as a kubectl plugin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

PLUGIN: Final = "kubectl gang"
_FILE: Final = "kubectl-gang"


def command_name() -> str:
    """``gangctl`` or ``kubectl gang``, as the user typed it."""
    return PLUGIN if Path(sys.argv[0]).name.startswith(_FILE) else "gangctl"


def is_plugin() -> bool:
    """Whether kubectl called this program, which selects a cluster."""
    return command_name() == PLUGIN
