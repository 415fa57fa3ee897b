"""Text from a cluster or a user, fit to be shown: nothing in it can move a cursor, colour or fake a line."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of characters that control rather than show: escapes, line breaks, changes of direction."""
_JOINERS: Final = frozenset("\u200c\u200d")
"""They belong to the spelling of Persian and to emoji of several parts."""


def escaped(text: str) -> str:
    r"""The text with every control character written out, as in ``\x1b``; always one line that can be encoded."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(letter) for letter in text)


def _shown(letter: str) -> str:
    if letter in _JOINERS or unicodedata.category(letter) not in _UNSAFE:
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
