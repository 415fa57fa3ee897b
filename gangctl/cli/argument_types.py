"""Argument types for argparse: signals, exit codes and checkpoint steps."""

from __future__ import annotations

from argparse import ArgumentTypeError
from difflib import get_close_matches
from typing import Final

from gangctl.api.signals import SIGNALS

_LAST: Final = 64
_MAX_EXIT_CODE: Final = 255
"""wait(2)."""
_MAX_STEP: Final = 2**53


def signal_number(text: str) -> tuple[str, int]:
    """Name and number of ``SIGKILL``, ``KILL``, ``kill`` or ``9``.

    Raises:
        ArgumentTypeError: Linux has no such signal; a similar name is suggested.
    """
    if text.isascii() and text.isdigit() and 1 <= int(text) <= _LAST:
        number = int(text)
        return next((name for name, one in SIGNALS.items() if one == number), f"SIG{number}"), number
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name not in SIGNALS:
        near = get_close_matches(name, SIGNALS, 1)
        raise ArgumentTypeError(f"{text!r} is no Linux signal" + (f"; did you mean {near[0]}?" if near else ""))
    return name, SIGNALS[name]


def exit_code(text: str) -> int:
    """An exit code.

    Raises:
        ArgumentTypeError: the text is no exit code.
    """
    if not (text.isascii() and text.isdigit() and int(text) <= _MAX_EXIT_CODE):
        raise ArgumentTypeError(f"{text!r} is no exit code: use a number from 0 to {_MAX_EXIT_CODE}")
    return int(text)


def step(text: str) -> int:
    """A checkpoint step.

    Raises:
        ArgumentTypeError: the text is no step.
    """
    if not (text.isascii() and text.isdigit() and int(text) <= _MAX_STEP):
        raise ArgumentTypeError(f"{text!r:.40} is no step: use a whole number from 0 on")
    return int(text)
