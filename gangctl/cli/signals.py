"""Names of signals as users write them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from gangctl.api.signals import SIGNALS

_LAST: Final = 64


def signal_number(text: str) -> tuple[str, int]:
    """Name and number of ``SIGKILL``, ``KILL``, ``kill`` or ``9``.

    Raises:
        ValueError: it is none of Linux' signals; the text says what is near.
    """
    if text.isascii() and text.isdigit() and 1 <= int(text) <= _LAST:
        number = int(text)
        return next((name for name, one in SIGNALS.items() if one == number), f"SIG{number}"), number
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name not in SIGNALS:
        near = get_close_matches(name, SIGNALS, 1)
        raise ValueError(f"{text!r} is no signal of Linux" + (f"; did you mean {near[0]}?" if near else ""))
    return name, SIGNALS[name]
