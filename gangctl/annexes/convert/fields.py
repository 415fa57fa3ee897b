"""Take the fields of a document, one by one: what is taken is carried over, and what is left becomes a note.

The rule: no field is dropped without a note. A converter takes each field that it knows, by name; :meth:`Fields.finish`
notes all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = "is not known to gangctl convert, and is not carried over"


class ConvertError(ValueError):
    """It can't be converted; the message says what was found and what to do."""


@dataclass(frozen=True)
class Note:
    """Something that is not carried over as it was, or that has another meaning."""

    path: str
    text: str
    is_edit: bool = False
    """The result can't be used before it is edited."""

    def __str__(self) -> str:
        """The line that a user reads."""
        return f"{self.path}: {self.text}"


class Notes(list[Note]):
    """In the order in which they were found."""

    def add(self, path: str, text: str, *, is_edit: bool = False) -> None:
        """Add one, unless it is there."""
        note = Note(path, text, is_edit)
        if note not in self:
            self.append(note)


class Fields:
    """A map of the document, of which each field is taken once."""

    def __init__(self, value: Any, path: str, notes: Notes) -> None:
        """``path``: where it is in the document; ConvertError if it isn't a map."""
        if not isinstance(value, Mapping):
            raise ConvertError(f"{path}: a map was expected, and there is {value!r:.60}")
        self.path, self.notes = path, notes
        self._left = {name: one for name, one in value.items() if one is not None}

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, default: Any = None) -> Any:
        """A field, which counts as carried over."""
        return self._left.pop(name, default)

    def number(self, name: str) -> int | None:
        """A whole number; absent if it is something else, which is noted."""
        value = self.take(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        self.note(name, f"is {value!r:.60} and no whole number; it is not carried over", is_edit=True)
        return None

    def count(self, name: str) -> int:
        """A number of pods, which is 1 if it is absent."""
        number = self.number(name)
        return 1 if number is None else number

    def map(self, name: str) -> Fields:
        """A map in it; empty if it is absent, ConvertError if it isn't a map."""
        return Fields(self.take(name, {}), self.at(name), self.notes)

    def maps(self, name: str) -> list[Fields]:
        """A list of maps in it; empty if it is absent, ConvertError if it isn't such a list."""
        return [Fields(one, f"{self.at(name)}[{at}]", self.notes) for at, one in enumerate(self.values(name))]

    def values(self, name: str) -> list[Any]:
        """A list in it; empty if it is absent, ConvertError if it isn't a list."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise ConvertError(f"{self.at(name)}: a list was expected, and there is {value!r:.60}")
        return value

    def items(self, name: str) -> dict[str, Any]:
        """A map in it, as it is, without the fields that are null; else as :meth:`map`."""
        return self.map(name).rest()

    def rest(self) -> dict[str, Any]:
        """All fields that are left, which count as carried over."""
        left, self._left = self._left, {}
        return left

    def note(self, name: str, text: str, *, is_edit: bool = False) -> None:
        """Say something of a field."""
        self.notes.add(self.at(name), text, is_edit=is_edit)

    def leave(self, **reasons: str) -> None:
        """Take fields of which nothing is lost, with the reason for each; absent ones are not mentioned."""
        for name, why in reasons.items():
            if self.take(name) is not None:
                self.note(name, why)

    def miss(self, **reasons: str) -> None:
        """Take fields that the result lacks, with what to do about each; those without a value don't matter."""
        for name, why in reasons.items():
            if self.take(name):
                self.note(name, f"is not carried over: {why}", is_edit=True)

    def finish(self) -> None:
        """Note what is left."""
        for name in self._left:
            self.note(name, UNKNOWN, is_edit=True)
