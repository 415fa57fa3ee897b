"""Read command lines of Python: the interpreter's own flags, and the program that a fork of a template could run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_IGNORES_HOOKS = re.compile("-[^WX-]*[IES]")
_PYTHON = re.compile(r"python(\d(\.\d+)?t?)?")
_PLAIN = frozenset("bBdEIOPqRsStuv")
_WITH_VALUE = frozenset("WX")


class PythonCommand(NamedTuple):
    """``python FLAGS SCRIPT ...`` or ``python FLAGS -m MODULE ...``."""

    interpreter: list[str]
    """The program and its own flags."""
    target: list[str]
    """A script and its arguments, or ``-m``, a module and its arguments."""


def parse_python(command: Sequence[str]) -> PythonCommand | None:
    """The parts of the command; None if it does not run a script or a module with Python."""
    read = _read(command)
    return None if isinstance(read, str) else read


def unforkable_flag(command: Sequence[str]) -> str:
    """Return the flag with which this Python can't be forked; empty if there is none, or if it isn't Python."""
    read = _read(command)
    return read if isinstance(read, str) else ignores_hooks(read)


def ignores_hooks(python: PythonCommand) -> str:
    """Return the flag with which this Python doesn't ask for a fork; empty if there is none."""
    return next(filter(_IGNORES_HOOKS.match, python.interpreter[1:]), "")


def _read(command: Sequence[str]) -> PythonCommand | str:
    """Return the parts, or the word that runs neither a script nor a module: empty if there is none."""
    if not command or not _PYTHON.fullmatch(command[0].rpartition("/")[2]):
        return ""
    at = 1
    while at < len(command):
        word = command[at]
        if not word.startswith("-"):
            return PythonCommand(list(command[:at]), list(command[at:]))
        if word == "--check-hash-based-pycs":
            at += 2
            continue
        if word.startswith("--") or word == "-":
            return word  # Help, standard input, and what later versions may add.
        for place, flag in enumerate(word[1:], start=1):
            rest = word[place + 1 :]
            if flag == "m":
                flags = ["-" + word[1:place]] if place > 1 else []
                module = [rest] if rest else list(command[at + 1 : at + 2])
                after = command[at + 1 :] if rest else command[at + 2 :]
                return PythonCommand([*command[:at], *flags], ["-m", *module, *after]) if module else ""
            if flag in _WITH_VALUE:
                at += not rest
                break
            if flag not in _PLAIN:
                return word  # -c, -i, -x, -h, -V: there is no script, or the process is not as it was started.
        at += 1
    return ""
