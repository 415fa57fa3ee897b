"""Errors that the command line prints without a traceback, its exit codes, and hints for names that don't exist."""

from collections.abc import Sequence
from difflib import get_close_matches
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


def hint(name: str, names: Sequence[str], if_none: str = "") -> str:
    """Similar names if there are any, else the first ten; ``if_none`` if there are no names."""
    near = get_close_matches(name, names, 3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(names[:10])}" if names else if_none
