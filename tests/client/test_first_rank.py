"""Forked processes and those that go on wait for the first rank alike, by code that neither can import of the other."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

from gangclient import _first_rank as of_the_client
from gangsidecar.start import first_rank as of_the_start


def test_both_copies_are_the_same_but_for_their_headers_and_the_python_that_they_run_on() -> None:
    assert code(of_the_client) == code(of_the_start)


def code(module: ModuleType) -> str:
    """Without the header; ``Mapping`` may come from ``typing``."""
    _header, *statements = ast.parse(inspect.getsource(module)).body
    imports = (ast.Import, ast.ImportFrom)
    return "\n".join(ast.unparse(one) for one in statements if not isinstance(one, imports))
