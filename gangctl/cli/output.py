"""Where commands write: one place that knows about streams, terminals, colours and broken pipes."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from rich.console import Console

from gangctl.cli.text import clean

WIDE = 10_000
"""Columns where nobody has a terminal: lines are never cut in a pipe."""


def say(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """One line for the user on stderr, where it never mixes with a result; lost if nobody listens."""
    try:
        sys.stderr.write(f"{clean(text)}\n")
        sys.stderr.flush()
    except OSError:
        return


def as_json(value: Any) -> str:
    """JSON as people and programs read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


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
