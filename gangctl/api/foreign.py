"""Kinds that aren't GangJobs: what is said of them where a GangJob is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gangctl.api.version import GROUP, KIND

CONVERTIBLE: Final = frozenset({"Job", "JobSet", "PyTorchJob", "TrainJob"})
"""Kinds that ``gangctl convert`` reads."""


def is_foreign(document: Any) -> bool:
    """Whether it says by its kind and apiVersion that it is of another tool, whose fields are others."""
    if not isinstance(document, dict):
        return False
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or kind == KIND:
        return False
    return kind in CONVERTIBLE or (isinstance(version, str) and not version.startswith(f"{GROUP}/"))


def advice(documents: Sequence[Any], filename: str) -> str:
    """What to do with documents of which none is a GangJob."""
    items = [one for document in documents for one in _items(document)]
    if any(isinstance(one, dict) and one.get("kind") in CONVERTIBLE for one in items):
        return f"gangctl convert {filename} makes a GangJob of it"
    return f"gangctl convert makes GangJobs of {', '.join(sorted(CONVERTIBLE))}, and of lines that start torchrun"


def _items(document: Any) -> list[Any]:
    """Those of a List, as ``kubectl get -o yaml`` prints it; else the document."""
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    return items if isinstance(items, list) else [document]
