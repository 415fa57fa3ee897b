"""Text for terminals: escapes control characters, so that no name or message can change the terminal."""

import re
from collections.abc import Sequence
from typing import Final

from gangctl.api.model import escaped
from gangctl.cli.command_name import as_typed

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")


def clean(value: object) -> str:
    r"""The text with all control characters escaped, as in ``\x1b``: always one line that can be encoded.

    The commands in it are those that this user can type.
    """
    return as_typed(escaped(str(value)))


def output_line(line: str) -> str:
    """One line of a program's output without colours; of a progress bar, the last state."""
    last = line.rstrip("\r").rpartition("\r")[2]
    return escaped(_COLOURS.sub("", last).expandtabs())


def format_duration(seconds: float) -> str:
    """Print a duration as kubectl prints ages: ``42s``, ``3m12s``, ``5h02m``, ``4d03h``."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def format_seconds(milliseconds: int | None) -> str:
    """Print a phase of an incident in seconds, to the millisecond; ``-`` while it isn't known."""
    return "-" if milliseconds is None else f"{milliseconds / 1000:.3f}"


def value_or_dash(value: object) -> str:
    """The value, or ``-`` if there is none."""
    return "-" if value is None or value == "" else clean(value)


def first(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: ``a, b and 6 more``."""
    left = len(names) - most
    return f"{', '.join(names[:most])}{f' and {left} more' if left > 0 else ''}"
