"""Durations as people read them."""

from __future__ import annotations

from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600


def took(seconds: float) -> str:
    """How long something took, to about three digits: ``8 ms``, ``2.31 s``, ``42.0 s``, ``15 min 03 s``."""
    milliseconds = max(0, round(seconds * 1000))
    if milliseconds < 1000:  # noqa: PLR2004 - a second
        return f"{milliseconds} ms"
    if milliseconds < 9_995:  # noqa: PLR2004 - what would be shown as 10.00
        return f"{milliseconds / 1000:.2f} s"
    if milliseconds < 59_950:  # noqa: PLR2004 - what would be shown as 60.0
        return f"{milliseconds / 1000:.1f} s"
    whole = round(milliseconds / 1000)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
