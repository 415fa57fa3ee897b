"""What the command line says instead of a traceback, and its exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended; each verb's --help says which of them it gives."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    HELD = 3
    """The gang is held or suspended, and was left so."""
    INTERRUPTED = 130


class UserError(Exception):
    """What was seen and what to do, in one sentence for the user; nothing was changed."""
