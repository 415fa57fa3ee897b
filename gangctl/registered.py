"""Find what annexes register: the house lists the packages in ``gangctl/annexes``, and imports none of them by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final, TypeVar

_ANNEXES: Final = "gangctl.annexes"
_R = TypeVar("_R")


def find_registered(kind: type[_R]) -> list[_R]:
    """Return what annexes have in ``REGISTERED`` of this kind, in the order of their names."""
    folder = Path(import_module(_ANNEXES).__path__[0])
    annexes = [import_module(f"{_ANNEXES}.{path.name}") for path in sorted(folder.glob("[a-z]*"))]
    return [one for annex in annexes for one in annex.REGISTERED if isinstance(one, kind)]
