"""Errors that the command line prints without a traceback, and its exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; the --help of each verb lists its own."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    HELD = 3
    """The gang is held or suspended."""
    INTERRUPTED = 130


class UserError(Exception):
    """An error of the user: the message says what was seen and what to do. Nothing was changed."""
