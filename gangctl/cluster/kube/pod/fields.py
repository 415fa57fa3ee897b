"""Reading the parts of a pod template that the schema keeps as written, so that nobody has checked them.

Null is absent, as on the API server. What can't be read at all is refused with its path; everything else is left to
the API server, which knows a pod's fields better and says so in the dry run.
"""

from __future__ import annotations

from typing import Any

from gangctl.cluster.errors import Terminal


def as_mapping(value: Any, path: str) -> dict[str, Any]:
    """A shallow copy of a mapping; empty if it is absent.

    Raises:
        Terminal: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Terminal(f"{path}: {value!r:.80} instead of a mapping")
    return dict(value)


def as_list(value: Any, path: str) -> list[Any]:
    """A shallow copy of a list; empty if it is absent.

    Raises:
        Terminal: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise Terminal(f"{path}: {value!r:.80} instead of a list")
    return list(value)


def as_mappings(value: Any, path: str) -> list[dict[str, Any]]:
    """The same for a list of mappings, each of which is copied.

    Raises:
        Terminal: it is something else.
    """
    return [as_mapping(one, f"{path}[{at}]") for at, one in enumerate(as_list(value, path))]
