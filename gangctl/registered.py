"""Find what annexes register: the house lists the packages in ``gangctl/annexes``, and imports none of them by name."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, NamedTuple, TypeVar, cast

_ANNEXES: Final = "gangctl.annexes"
_R = TypeVar("_R")


def find_registered(kind: type[_R]) -> list[_R]:
    """Return what annexes have in ``REGISTERED`` of this kind, in the order of their names."""
    folder = Path(import_module(_ANNEXES).__path__[0])
    annexes = [import_module(f"{_ANNEXES}.{path.name}") for path in sorted(folder.glob("[a-z]*"))]
    return [one for annex in annexes for one in annex.REGISTERED if isinstance(one, kind)]


class PodCompletion(NamedTuple):
    """What an annex changes in a pod whose template has an annotation: what differs between the members of a role."""

    annotation: str
    place: str
    """``module:function``, which gets the pod and returns it."""

    def load(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return cast("Callable[[dict[str, Any]], dict[str, Any]]", resolve_name(self.place))
