"""Reads fields of a pod template that the CRD's schema doesn't check.

The rule: null means absent, as on the API server. A value of the wrong type is an error that names the field. All other
checks are left to the API server, which makes them in the dry run.
"""

from __future__ import annotations

from typing import Any

from gangctl.cluster.errors import Terminal


def as_mapping(value: Any, path: str) -> dict[str, Any]:
    """A shallow copy of a mapping; empty if it is absent.

    Raises:
        Terminal: it has another type.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Terminal(f"{path}: {value!r:.80} instead of a mapping")
    return dict(value)


def as_list(value: Any, path: str) -> list[Any]:
    """A shallow copy of a list; empty if it is absent.

    Raises:
        Terminal: it has another type.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise Terminal(f"{path}: {value!r:.80} instead of a list")
    return list(value)


def as_mappings(value: Any, path: str) -> list[dict[str, Any]]:
    """A list of mappings, each a shallow copy; empty if it is absent.

    Raises:
        Terminal: it has another type.
    """
    return [as_mapping(one, f"{path}[{at}]") for at, one in enumerate(as_list(value, path))]
