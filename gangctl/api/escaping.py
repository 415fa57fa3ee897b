"""Escapes text from a cluster or a user, so it can't move the cursor, set colours or fake a line. Imports little."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of control characters: escapes, line breaks, changes of direction."""
_JOINERS: Final = frozenset("\u200c\u200d")
"""Used in the spelling of Persian and in compound emoji."""


def escaped(text: str) -> str:
    r"""The text with all control characters escaped, as in ``\x1b``: always one line that can be encoded."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(letter) for letter in text)


def _shown(letter: str) -> str:
    if letter in _JOINERS or unicodedata.category(letter) not in _UNSAFE:
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
