"""The Python stacks of this process, for the incident of a gang that hangs.

The rule: this process writes them itself, into memory, when the supervisor asks for them with a signal. It sends that
only to a process that catches it and has this file, so a process that offers nothing is never disturbed. A signal that
the script uses itself is left to it.
"""

from __future__ import annotations

import faulthandler
import os
import signal

SIGNAL = 59
"""A real-time signal; the supervisor knows it, too."""
FILE = "gang-stacks"
_offered = False


def offer_stacks() -> None:
    """Offer them, once in a process and those forked from it. Outside of gangctl, and where it can't be, do nothing."""
    global _offered  # noqa: PLW0603 - it is one process
    if _offered or not os.environ.get("GANG_SOCKET") or not hasattr(os, "memfd_create"):
        return
    _offered = True
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    try:
        faulthandler.register(SIGNAL, file=os.memfd_create(FILE), all_threads=True)
    except (OSError, RuntimeError, ValueError):  # The kernel or the interpreter has none of it.
        return
