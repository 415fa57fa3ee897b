"""Record what a worker imports, so that the next template can import it ahead.

A finder that finds nothing sees the name of each module just before it is imported. The one before is imported by then.
Only modules of the interpreter and of installed packages are recorded, never the user's own files. But what the program
has found in folders that it has put into ``sys.path`` itself is noted, since a template must not import that: it would
find an installed package of the same name, or none. So are variables that the program has changed since the last look.
What an installed module changes as it is imported, it changes in a template as well: PyTorch puts a folder into
``sys.path`` and writes a module there (``torch/distributed/nn/jit/instantiator.py``). Each time follow the milliseconds
that imports have taken so far: what passed between two looks while a module was being imported.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any

from gangsidecar.start import CHANGED, OWN

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
CLIENT = "gangclient"
"""The supervisor has put it into PYTHONPATH: it isn't a file of the user's."""
MAX_BYTES = 4 << 20
"""Each start that is executed appends its imports again; beyond this nothing is written."""
_environment: dict[bytes, bytes] = {}
"""That of the last look."""


class Recorder:
    """Appends the name of each imported module to a file, a line each. Nothing that fails here reaches the worker."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._pending: list[str] = []
        self._looked = 0.0
        self._seconds = 0.0
        self._places = installed_places()
        self._path = frozenset(sys.path)  # The program has put nothing into it yet: a template has the same.
        self._seen = list(sys.path)
        """At the last look."""
        begin()

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        """Find nothing."""
        try:  # noqa: SIM105 - contextlib would be imported into the worker
            self._record(name)
        except Exception:  # noqa: BLE001, S110 - an object in sys.modules may be anything, and raise anything
            pass
        return None

    def _record(self, name: str) -> None:
        found = {one: sys.modules[one] for one in self._pending if one in sys.modules}
        specs = {one: getattr(module, "__spec__", None) for one, module in found.items()}
        done = [one for one, spec in specs.items() if not getattr(spec, "_initializing", False)]
        # In the order in which they were done: no import has begun since, so the last to begin was done first.
        self._pending = [one for one in found if one not in done]  # Those that were not found are forgotten.
        looked, self._looked = self._looked, time.monotonic()
        self._seconds += self._looked - looked if self._pending else 0.0
        if sys.path != self._seen:
            if self._is_in_installed(found):
                self._path |= set(sys.path).difference(self._seen)
            self._seen = list(sys.path)
        self._write([*filter(None, (self._line(one, found[one]) for one in reversed(done))), *self._changed(found)])
        self._pending.append(name)

    def _changed(self, found: Mapping[str, Any]) -> list[str]:
        now = _variables()
        if now == _environment:
            return []
        names = [name for name in {*_environment, *now} if _environment.get(name) != now.get(name) and name.isascii()]
        begin()
        if self._is_in_installed(found):
            return []
        return [CHANGED + name.decode() for name in sorted(names)]

    def _is_in_installed(self, found: Mapping[str, Any]) -> bool:
        """Whether an installed module is being imported."""
        return any(is_installed(found[one], self._places) for one in self._pending)

    def _line(self, name: str, module: Any) -> str:
        if is_installed(module, self._places):
            return name
        return "" if "." in name or is_in(module, self._path) else OWN + name

    def _write(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            descriptor = os.open(self._file, FLAGS, 0o600)
            try:
                if os.fstat(descriptor).st_size < MAX_BYTES:
                    lines = (*names, round(1000 * self._seconds))
                    os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
            finally:
                os.close(descriptor)
        except (OSError, UnicodeError):
            return


def begin() -> None:
    """Note the environment: the program starts with it, or has been seen to have changed it."""
    _environment.clear()
    _environment.update(_variables())


def _variables() -> Mapping[bytes, bytes]:
    """The environment as ``os`` keeps it: to compare that takes microseconds."""
    found: Mapping[bytes, bytes] = getattr(os.environ, "_data", {})
    return found


def installed_places() -> tuple[str, ...]:
    """The folders of the standard library and of installed packages."""
    import site  # noqa: PLC0415 - also where Python was started with -S

    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths.update(path for path in sys.path if os.path.basename(path) in {"site-packages", "dist-packages"})
    if sys.flags.no_user_site == 0:
        paths.add(site.getusersitepackages())
    return tuple(os.path.join(path, "") for path in paths if path)


def is_installed(module: Any, places: tuple[str, ...]) -> bool:
    """Return whether it is of the interpreter or of an installed package."""
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    if origin in {"built-in", "frozen"}:
        return True
    if getattr(spec, "name", "").partition(".")[0] == CLIENT:
        return True
    return isinstance(origin, str) and origin.startswith(places)


def is_in(module: Any, path: AbstractSet[str]) -> bool:
    """Return whether a module without a parent is in one of these folders, or in no folder at all."""
    spec = getattr(module, "__spec__", None)
    files = getattr(spec, "submodule_search_locations", None) or [getattr(spec, "origin", None)]
    folders = {os.path.dirname(file) for file in files if isinstance(file, str)}
    return not folders or not folders.isdisjoint(path)
