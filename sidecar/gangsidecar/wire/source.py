"""Where a supervisor looks for progress itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """What it looks at, beside the framework API; one of the two is not empty. From revision 4."""

    pattern: str = ""
    """A regular expression with a group ``step``. It is searched in each line of the worker's output."""
    file: str = ""
    """A file whose modification time changes with each step."""
