"""Messages of tests, where the words don't matter."""

from __future__ import annotations

from gangctl.words.message import Message


def words(text: str) -> Message:
    """Return a message that no sentence of the decisions makes."""
    return Message.stored(text, None)
