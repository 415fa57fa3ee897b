"""Forked processes and those that go on wait for the first rank alike, by code that neither can import of the other."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

from gangclient import _parking as of_the_client
from gangsidecar.start import template as of_the_start

PARTS = (
    *("STORE_USER =", "FIRST_RANK_SECONDS =", "AGAIN_SECONDS ="),
    *("def wait_for_first_rank(", "def wait_for_listener("),
)


def test_both_copies_are_the_same_but_for_the_python_that_they_run_on() -> None:
    assert code(of_the_client) == code(of_the_start)
    assert len(code(of_the_client)) == len(PARTS)


def code(module: ModuleType) -> list[str]:
    """The statements about it."""
    statements = [ast.unparse(one) for one in ast.parse(inspect.getsource(module)).body]
    return [one for one in statements if one.startswith(PARTS)]
