"""Forked processes and those that go on wait for the first rank alike, by code that neither can import of the other."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

from gangclient import _parking as of_the_client
from gangsidecar.start import template as of_the_start


def test_both_copies_are_the_same_but_for_the_python_that_they_run_on() -> None:
    assert code(of_the_client) == code(of_the_start)


def code(module: ModuleType) -> list[str]:
    """The statements from the first constant to the last function, with their docstrings."""
    statements = [ast.unparse(one) for one in ast.parse(inspect.getsource(module)).body]
    first = next(at for at, one in enumerate(statements) if one.startswith("STORE_USER = "))
    last = next(at for at, one in enumerate(statements) if one.startswith("def wait_for_listener("))
    return statements[first : last + 1]
