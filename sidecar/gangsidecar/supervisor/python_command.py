"""Reads a command that starts Python: its own flags, and what it runs. See getopt.c and initconfig.c of CPython."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

_PYTHON = re.compile(r"python(\d(\.\d+)?t?)?")
_PLAIN = frozenset("bBdEIOPqRsStuv")
_WITH_VALUE = frozenset("WX")


class PythonCommand(NamedTuple):
    """``python FLAGS SCRIPT ...`` or ``python FLAGS -m MODULE ...``."""

    interpreter: list[str]
    """The program and its own flags."""
    target: list[str]
    """A script and its arguments, or ``-m``, a module and its arguments."""


def parse(command: Sequence[str]) -> PythonCommand | None:
    """The parts of the command; None if it does not run a script or a module with Python."""
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):
        return None
    at = 1
    while at < len(command):
        word = command[at]
        if not word.startswith("-"):
            return PythonCommand(list(command[:at]), list(command[at:]))
        if word == "--check-hash-based-pycs":
            at += 2
            continue
        if word.startswith("--") or word == "-":
            return None  # Help, standard input, and what later versions may add.
        for place, flag in enumerate(word[1:], start=1):
            rest = word[place + 1 :]
            if flag == "m":
                flags = ["-" + word[1:place]] if place > 1 else []
                module = [rest] if rest else list(command[at + 1 : at + 2])
                after = command[at + 1 :] if rest else command[at + 2 :]
                return PythonCommand([*command[:at], *flags], ["-m", *module, *after]) if module else None
            if flag in _WITH_VALUE:
                at += not rest
                break
            if flag not in _PLAIN:
                return None  # -c, -i, -x, -h, -V: there is no script, or the process is not as it was started.
        at += 1
    return None
