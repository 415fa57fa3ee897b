"""A line of a worker's output in which a pattern of its Run was found."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LOG_PATTERNS = 8
"""That one Run has, and so the most matches of one attempt."""
LOG_PATTERN = 256
"""Characters of a pattern."""
LOG_LINE = 200
"""Characters of a line that are told."""


@dataclass(frozen=True)
class LogMatch:
    """The first line of the worker's output in which this pattern was found.

    It names the pattern and not its number: the policy may have changed since the worker was started.
    """

    attempt: int
    pattern: str
    line: str
    """Printable ASCII, with all else escaped. Of a longer line, the part with the match."""
