"""Finds steps in the output of a process, line by line. It reads and writes nothing.

The rule: a line ends with a newline or, as progress bars have it, a carriage return. Only its first :data:`LINE` bytes
are searched, whatever its length; bytes that are no text are searched as replacement characters.
"""

from __future__ import annotations

import re

LINE = 8192
"""Bytes of a line that are searched."""
_DIGITS = 18
"""A number with more digits is no step."""
_ENDS = re.compile(rb"[\r\n]+")


class Lines:
    """Cuts one stream into lines."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece; empty ones are left out."""
        lines = _ENDS.split(piece)
        lines[0] = self._begun + lines[0]
        self._begun = lines.pop()[:LINE]
        return [line[:LINE] for line in lines if line]

    def begun(self) -> list[bytes]:
        """What there is of a line that has not ended."""
        return [self._begun] if self._begun else []

    def end(self) -> list[bytes]:
        """The last line, if no newline ended it."""
        last, self._begun = self._begun, b""
        return [last] if last else []


class StepSearch:
    """Searches lines for the group ``step`` of a pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile it.

        Raises:
            re.error: this Python does not take the pattern, or it has no such group.
        """
        self._pattern = re.compile(pattern)
        if "step" not in self._pattern.groupindex:
            raise re.error("it has no group named step")

    def step(self, line: bytes) -> int | None:
        """The step in the line; None if the pattern is not in it, or its group is no number."""
        found = self._pattern.search(line.decode("utf-8", errors="replace"))
        text = "" if found is None else found.group("step") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None
