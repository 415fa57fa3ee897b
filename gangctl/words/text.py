"""Text: lists, counts and times in the sentences that users read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

LISTED: Final = 5
"""Names in a sentence; the rest is counted."""


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """The names as ``a``, ``a and b`` or ``a, b and c``; of many the first ones, and how many more there are."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def moment(seconds: float) -> str:
    """A time, given in seconds since the epoch, as ``2026-11-22T10:05:12Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def counted(number: int, noun: str) -> str:
    """The number with its noun, as ``1 pod`` or ``2 pods``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clock_time(seconds: float) -> str:
    """The time of the day, as ``13:46:40.8 UTC``. ``seconds``: since the epoch."""
    tenths = round(seconds * 10)
    return f"{datetime.fromtimestamp(tenths // 10, UTC):%H:%M:%S}.{tenths % 10} UTC"


def time_ahead(seconds: float, now: float) -> str:
    """A time to come, with its date where it is more than half a day ahead. Both are in seconds since the epoch."""
    return moment(seconds) if seconds - now > 12 * 3600 else clock_time(seconds)


def quoted(words: str) -> str:
    """The words of others in brackets, behind what they are about."""
    return f" ({words.rstrip('.')})" if words else ""
