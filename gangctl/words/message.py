"""Messages: sentences for people that know their name and their parameters.

The rule: a decision compares the values of messages, never their English, so that a sentence can be reworded and no
gang writes its status for it. A value has neither times nor text that follows from its other parameters: only another
fact is news.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final, ParamSpec

from gangctl.api.model import Said, escaped, sentence

P = ParamSpec("P")
DERIVED: Final = frozenset({"at", "since", "until", "why"})
"""Parameters that aren't part of a value: times, and text that follows from the others."""
MAX_PARAMETER: Final = 256
"""Characters of a parameter in a status."""
MAX_ENTRIES: Final = 8
"""Entries of a list in a status; the rest is counted."""
MEMBERS: Final = 10_000
"""Of the largest gang: a list in a status that claims more has none."""


class Message(str):
    """A sentence, with the name of its function and the parameters that it was made from."""

    __slots__ = ("name", "parameters")

    name: str
    parameters: dict[str, object]
    """Without those that have their default."""

    @classmethod
    def stored(cls, text: str, said: Said | None) -> Message:
        """Return a text of a status as the message that it was."""
        made = cls(text)
        made.name, made.parameters = ("", {}) if said is None else (said.name, dict(said.parameters))
        return made

    def said(self) -> Said:
        """Return what a status keeps of it."""
        return Said(**_json(self))

    def is_same(self, said: Said | None) -> bool:
        """Return whether a status says the same already, in whatever words."""
        own = self.said()
        return said is not None and (own.name, value_of(own.parameters)) == (said.name, value_of(said.parameters))

    def shown(self) -> str:
        """Return name and parameters in one line."""
        return _shown(self)


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Message], tuple[str, ...]]]] = {}
"""By name; with the parameters that have no default."""


def message(words: Callable[P, str]) -> Callable[P, Message]:
    """Make a function that returns a sentence return a message."""
    parameters = signature(words).parameters
    defaults = {name: each.default for name, each in parameters.items()}
    name, names = words.__name__, tuple(parameters)

    @wraps(words)
    def made(*args: P.args, **kwargs: P.kwargs) -> Message:
        made_of = Message(sentence(words(*args, **kwargs)))
        given = dict(zip(names, args, strict=False)) | kwargs
        made_of.name = name
        made_of.parameters = {key: each for key, each in given.items() if each != defaults[key]}
        return made_of

    assert name not in _FUNCTIONS, f"two sentences are named {name}"
    _FUNCTIONS[name] = made, tuple(key for key, each in defaults.items() if each is Parameter.empty)
    return made


def said_of(text: str) -> Said | None:
    """Return the value of a text; None if it isn't a message."""
    return text.said() if isinstance(text, Message) else None


def said_again(
    said: Said, update: Callable[[str, Mapping[str, Any]], dict[str, Any]] = lambda _name, _given: {}
) -> Message | None:
    """Return what a status says, with the parameters that ``update`` adds to those of each message in it.

    None if this release doesn't know the sentence, or makes none of such parameters.
    """
    try:
        again = _again({"name": said.name, "parameters": said.parameters}, update)
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        return None
    return again if isinstance(again, Message) else None


def _again(value: Any, update: Callable[[str, Mapping[str, Any]], dict[str, Any]]) -> Any:
    match value:
        case {"name": str(name), "parameters": dict(parameters)}:
            function, needed = _FUNCTIONS[name]
            given = {key: _again(each, update) for key, each in parameters.items()}
            return function(**(dict.fromkeys(needed) | given | update(name, given)))
        case {"first": list(first), "more": int(more)}:
            return [*first, *[""] * min(more, MEMBERS)]  # A sentence shows fewer than these, and their number.
        case list():
            return [_again(each, update) for each in value]
        case _:
            return value


def _json(value: Any) -> Any:
    match value:
        case Message():
            found = {key: _json(each) for key, each in value.parameters.items() if each is not None}
            return {"name": value.name, "parameters": found}
        case str():
            text = escaped(value)
            return text if len(text) <= MAX_PARAMETER else f"{text[: MAX_PARAMETER - 1]}…"
        case bool() | int() | float() | None:
            return value
        case Sequence() if len(value) > MAX_ENTRIES:
            return {"first": [_json(each) for each in value[:MAX_ENTRIES]], "more": len(value) - MAX_ENTRIES}
        case Sequence():
            return [_json(each) for each in value]
        case Mapping():  # It comes from a status.
            return value
    raise TypeError(f"{value!r} isn't a parameter of a message")


def value_of(said: Any) -> Any:
    """Return parameters without those that follow from others."""
    match said:
        case Mapping():
            return {key: value_of(each) for key, each in said.items() if key not in DERIVED}
        case list():
            return [value_of(each) for each in said]
        case _:
            return said


def _shown(value: object) -> str:
    match value:
        case Message():
            given = value.parameters.items()
            known = {key: each for key, each in given if key not in DERIVED and each not in (None, [])}
            shown = ", ".join(f"{key}={_shown(each)}" for key, each in known.items())
            return f"{value.name}({shown})" if shown else value.name
        case {"name": str(name), "parameters": dict(parameters)}:
            return _shown(Message.stored("", Said(name=name, parameters=parameters)))
        case str():
            return value if value.replace("-", "").replace("_", "").isalnum() else f"'{value}'"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return f"[{', '.join(map(_shown, value))}]"
        case _:
            return str(value)
