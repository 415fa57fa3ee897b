"""The text of a shell, as far as it can be told without being one: lines, words, and what is plain.

A word is told by its quotes and substitutions. It is plain if every shell gives it as it stands. Whatever else there is
(operators, patterns, an open quote) isn't split: it is the rest of the text, which is kept as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from gangctl.convert.fields import ConvertError

PARENTHESES: Final = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_SUBSTITUTION: Final = rf"\${PARENTHESES}|\$\{{[^}}]*\}}|\$(?![({{])|`[^`]*`"
_QUOTED: Final = rf"""'[^']*'|"(?:\\.|{_SUBSTITUTION}|[^"\\$`])*\""""
_WORD: Final = re.compile(
    rf"""(?:[ \t]|\\\r?\n)*(?P<word>(?!\#)(?:\\[^\r\n]|{_QUOTED}|{_SUBSTITUTION}|[^\s"'`$\\;&|<>()])+)""", re.DOTALL
)
_PLAIN: Final = re.compile(r"""(?:[\w@%+=:,./^#-]|'[^']*'|"[^"$`\\!]*")+""")
_CONSTANT: Final = re.compile(r"[\w@%+=:,./^-]+(?: [\w@%+=:,./^-]+)*")
_VARIABLE: Final = re.compile(r"\\.|'[^']*'|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.DOTALL)
"""A variable that a shell replaces, or text in which it replaces none."""
_COMMENT: Final = re.compile(r"\s*(?:#[^\n]*)?")
_LINE: Final = re.compile(
    r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?<!\S)\#[^\n]*|[^\n'"\\])+(?P<open>['"].*)?|['"].*""", re.DOTALL
)


def lines(text: str) -> list[str]:
    """The lines of a script, without those of comments; an open quote or a backslash continues a line.

    Raises:
        ConvertError: a quote stays open.
    """
    found = list(_LINE.finditer(text.replace("\r\n", "\n")))
    if is_open := [one for one in found if one["open"]]:
        raise ConvertError(f"{is_open[0][0]:.80}: No closing quotation")
    made = (re.sub(r"\\\n", "", one[0].strip()) for one in found)
    return [line for line in made if line and not line.startswith("#")]


def split(text: str, start: int = 0) -> tuple[list[re.Match[str]], str]:
    """The words from there on, as they are written, and the rest; empty if that is a comment."""
    found, end = list[re.Match[str]](), start
    while (word := _WORD.match(text, end)) is not None:
        found.append(word)
        end = word.end()
    return found, "" if _COMMENT.fullmatch(text, end) else text[end:].strip()


def plain(word: str) -> str | None:
    """What a word means; None if only a shell can tell."""
    return "".join(shlex.split(word)) if not word or _PLAIN.fullmatch(word) else None


def arguments(text: str) -> list[str] | None:
    """What the words of a text mean; None if only a shell can tell."""
    words, rest = split(text)
    meant = [one for word in words if (one := plain(word["word"])) is not None]
    return meant if not rest and len(meant) == len(words) else None


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text with the values of variables in their place, where a shell would do no more than that."""

    def value(found: re.Match[str]) -> str:
        known = values.get(found[1] or found[2] or "")
        return found[0] if known is None or _CONSTANT.fullmatch(known) is None else known

    return _VARIABLE.sub(value, text)
