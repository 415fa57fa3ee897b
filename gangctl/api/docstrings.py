"""The docstrings below the attributes of a class, from its source: what the CRD and the reference say of a field."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise


def docstrings(kind: type) -> dict[str, str]:
    """By attribute, of the class alone: its bases have their own. A class inside another has none."""
    return _by_class(kind.__module__).get(kind.__name__, {})


@cache
def _by_class(module: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    classes = [one for one in ast.parse(inspect.getsource(sys.modules[module])).body if isinstance(one, ast.ClassDef)]
    for one in classes:
        for field, below in pairwise(one.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found.setdefault(one.name, {})[name] = inspect.cleandoc(text)
    return found
