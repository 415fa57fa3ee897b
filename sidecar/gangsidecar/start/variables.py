"""Finds modules that read, at import, a variable that is another one in each attempt or process, such as RANK.

What such a module keeps would be wrong in every fork, and nothing would say so. While the template imports,
``os.environ`` notes each name that is read. What C code reads, and copies of the whole environment, are not seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict, Tuple

from gangsidecar.start.child import ONLY_TEMPLATE

_Environ: Any = type(os.environ)
_reads: Dict[str, str] = {}
"""Variable -> the module whose import has read it first."""
_importing = ""


class _Watched(_Environ):  # type: ignore[misc]
    """``os.environ`` while modules are imported. It answers as ever."""

    def __getitem__(self, key: str) -> str:
        _reads.setdefault(key, _importing)
        value: str = super().__getitem__(key)
        return value


def importing(module: str) -> None:
    """Note what this module reads; empty: the imports are over."""
    global _importing  # noqa: PLW0603 - there is one environment
    _importing = module
    os.environ.__class__ = _Watched if module else _Environ


def stale(template: Mapping[str, str], environment: Mapping[str, str]) -> Tuple[str, str]:
    """The first module that has read another value than a start would have found, and what it has done.

    Args:
        template: the environment with which the template began.
        environment: the whole environment of a start.
    """
    for name, module in _reads.items():
        if name not in ONLY_TEMPLATE and template.get(name) != environment.get(name):
            return module, f"importing {module} reads {name}, which differs between attempts or processes"
    return "", ""
