"""Where commands write: one place that knows about streams, terminals, colours and broken pipes."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Final, TextIO

import yaml
from rich.console import Console

from gangctl.cli.text import clean

WIDE: Final = 10_000
"""Columns where nobody has a terminal: lines are never cut in a pipe."""
_NOT_ASCII: Final = re.compile(r"[^\n\x20-\x7e]")


def print_out(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_err(text: str) -> None:
    """One line for the user on stderr, where it never mixes with a result; lost if nobody listens."""
    try:
        sys.stderr.write(f"{clean(text)}\n")
        sys.stderr.flush()
    except OSError:
        return


def as_json(value: Any) -> str:
    r"""JSON as people and programs read it. What would control a terminal is written as ``\u202e``: the same value."""
    return _NOT_ASCII.sub(_in_json, json.dumps(value, indent=2, ensure_ascii=False))


def as_yaml(value: Any) -> str:
    """The same as YAML, where only a text without anything beyond ASCII can have such characters written out."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if any(clean(line) != line for line in text.split("\n")):
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False)
    return text.rstrip()


def _in_json(found: re.Match[str]) -> str:
    letter = found[0]
    if clean(letter) == letter:
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def console(stream: TextIO) -> Console:
    """A rich console that takes text as it is: no markup, no emoji codes, no guesses what to colour.

    NO_COLOR, TERM=dumb and FORCE_COLOR are looked at by rich itself.
    """
    return Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not stream.isatty(),
        width=None if stream.isatty() else WIDE,
    )


def is_terminal(stream: TextIO) -> bool:
    """Whether a live view makes sense there."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
