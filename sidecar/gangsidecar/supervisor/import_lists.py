"""The list of what the worker imports: kept for the pod's next session, and offered to other pods of the role.

A list that comes from a file or from another pod is untrusted. The rule: it is used as a whole or not at all. Its
interpreter must be one of this pod, its modules must have names of modules, and of its variables none may be another
than :data:`EARLY`, which no secret has as its name. What can't be written or read costs one start that imports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gangsidecar import wire
from gangsidecar.common import log
from gangsidecar.start import CHANGED, OWN
from gangsidecar.start.link import depends_on_folder

if TYPE_CHECKING:
    from gangsidecar.wire.python_command import PythonCommand

OFFERING = 8
"""So many members of a role offer their lists, by number. All say the same, but some may be spares that run nothing."""
EARLY = re.compile(r"(LD|MALLOC|GLIBC|LC)_[A-Z0-9_]{1,64}|LANG|LANGUAGE|PYTHON[A-Z]{1,64}", re.ASCII)
"""Those of ``READ_EARLY`` (``start/link.py``) that a list may have: a fork must have begun with them."""
_ENTRY = re.compile(rf"[{OWN}{CHANGED}]?[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_LONGEST = 255
"""Characters of a module's name."""
_ROOM = wire.MAX_IMPORTS_BYTES - (1 << 14)
"""Bytes for the names of modules. With all of its other fields, the message is below its limit."""


class Known(NamedTuple):
    """An interpreter that workers run, and what it imports by their first step."""

    python: PythonCommand
    environment: dict[str, str]
    """That with which it begins, without what differs between attempts or processes."""
    modules: Sequence[str]
    folder: str
    """That in which it begins; empty: the supervisor's."""


class ImportLists:
    """The lists that one supervisor keeps, offers and gets."""

    def __init__(self, path: str, gang: str, member: str, pod: str) -> None:
        """``path``: the file for the pod's next session."""
        self.pod = pod
        self._path = path
        self._gang = gang
        self._offers = int(member.rpartition("-")[2]) < OFFERING
        self._own: wire.Imports | None = None  # The newest that was learnt in this pod.
        self.offer = ""
        """The newest list that the controller is to have, as a line; empty: none."""

    def keep(self, known: Known, executable: str, plain: dict[str, str]) -> None:
        """Keep and offer this list. ``executable``: the interpreter's path; ``plain``: the container's environment."""
        python, environment = known.python, known.environment
        early = {name for name, value in environment.items() if EARLY.fullmatch(name) and plain.get(name) != value}
        program = python.target[: 2 if python.target[0] == "-m" else 1]
        own = wire.Imports(
            self._gang,
            self.pod,
            (executable, *python.interpreter[1:], *program),
            tuple(_fitting(sorted(known.modules, key=lambda name: name[0] != OWN))),
            tuple((name, environment[name]) for name in sorted(early)),
            known.folder if depends_on_folder(environment) else "",
        )
        if own == self._own:
            return
        self._own = own
        try:
            text = wire.encode(own)
            wire.decode(text)
            if len(text) > wire.MAX_IMPORTS_BYTES:
                return
            self.offer = text if self._offers else ""
            with open(f"{self._path}.tmp", "w", encoding="ascii") as file:
                file.write(text)
            os.replace(f"{self._path}.tmp", self._path)
        except (OSError, wire.WireError) as error:
            log("warning", "what the worker imports can't be kept for the next session", reason=error)

    def load(self) -> wire.Imports | None:
        """Return the list of this pod's earlier sessions; None if there is none that can be used."""
        try:
            with open(self._path, "rb") as file:
                found = wire.decode(file.read(wire.MAX_IMPORTS_BYTES + 1))
        except FileNotFoundError:
            return None
        except (OSError, wire.WireError) as error:
            log("warning", "the list of what the worker imports is not usable", file=self._path, reason=error)
            return None
        if not isinstance(found, wire.Imports) or found.pod != self.pod:
            log("warning", "the list of what the worker imports is another pod's", file=self._path)
            return None
        return found

    def read(
        self, imports: wire.Imports, python: PythonCommand | None, own: PythonCommand | None, plain: dict[str, str]
    ) -> Known | None:
        """Return what a list says; None if it can't be used, and then the log says why.

        ``python``: its command; ``own``: the worker's command here; ``plain``: the container's environment here.
        """
        wrong = self._wrong(imports, python)
        if python is None or wrong:
            log("warning", "a list of what the worker imports is ignored", pod=imports.pod[:64], reason=wrong)
            return None
        if own is not None and _alike(own.interpreter, python.interpreter):
            python = own  # Forks of a template have its command, and PATH may be another here.
        return Known(python, {**plain, **dict(imports.environment)}, imports.modules, imports.folder)

    def _wrong(self, imports: wire.Imports, python: PythonCommand | None) -> str:
        if imports.gang != self._gang:
            return "it is another gang's"
        program = "".join(imports.command[:1])
        if python is None or "\0" in "".join(imports.command):
            return f"{program!r:.100} with its flags runs no script"
        if not (os.path.isabs(program) and os.path.isfile(program) and os.access(program, os.X_OK)):
            return f"{program!r:.100} can't be executed here"
        if (name := next((name for name in imports.modules if not is_entry(name)), None)) is not None:
            return f"{name!r:.100} isn't the name of a module"
        if "\0" in imports.folder:
            return f"{imports.folder!r:.100} isn't a folder"
        pairs = (name for name, value in imports.environment if "\0" in value or not EARLY.fullmatch(name))
        return f"the variable {name!r:.100} isn't for it to set" if (name := next(pairs, None)) is not None else ""


def same(one: wire.Imports, other: wire.Imports) -> bool:
    """Return whether both lead to the same template."""
    return replace(one, pod="", beside=False) == replace(other, pod="", beside=False)


def _alike(own: Sequence[str], other: Sequence[str]) -> bool:
    return [os.path.basename(own[0]), *own[1:]] == [os.path.basename(other[0]), *other[1:]]


def _fitting(modules: Sequence[str]) -> list[str]:
    """The first of these modules, as many as a list may have: a template imports no other before it has these."""
    room, found = _ROOM, list[str]()
    for name in modules[: wire.MAX_ITEMS]:
        room -= len(name) + 3
        if room < 0:
            break
        if is_entry(name):
            found.append(name)
    return found


def merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return each entry of these lists once, a variable before all modules that follow it in any of them."""
    found = dict.fromkeys(chain.from_iterable(lists))
    modules = [name for name in found if name[0] != CHANGED]
    places: dict[str, float] = {name: at for at, name in enumerate(modules)}
    for each in lists:
        first = float(len(modules))
        for name in reversed(each):
            if name[0] == CHANGED:
                places[name] = min(first - 0.5, places.get(name, first))
            else:
                first = min(first, places[name])
    return sorted(found, key=places.__getitem__)


def is_entry(name: str) -> bool:
    """Return whether it is a name that a module can have, or such a name after :data:`OWN` or :data:`CHANGED`."""
    return len(name) <= _LONGEST and _ENTRY.fullmatch(name) is not None
