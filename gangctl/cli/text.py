"""Text for terminals: nothing that a name or a message contains can move the cursor, colour or fake a line."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of characters that control rather than show: escapes, line breaks, changes of direction."""


def clean(value: object) -> str:
    r"""The text with every control character written out, as in ``\x1b``; always one line that can be encoded."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(letter) for letter in text)


def output_line(line: str) -> str:
    """One line of a program's output as it would look in a file: no colours, the last state of a progress bar."""
    last = line.rstrip("\r").rpartition("\r")[2]
    return clean(_COLOURS.sub("", last).expandtabs())


def duration(seconds: float) -> str:
    """``42s``, ``3m12s``, ``5h02m``, ``4d03h``: as kubectl shows ages."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def seconds(milliseconds: int | None) -> str:
    """A phase of an incident in seconds, to the millisecond; ``-`` while it isn't known."""
    return "-" if milliseconds is None else f"{milliseconds / 1000:.3f}"


def shown(value: object) -> str:
    """The value; ``-`` if there is none."""
    return "-" if value is None or value == "" else clean(value)


def _shown(letter: str) -> str:
    if unicodedata.category(letter) not in _UNSAFE:
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
