"""MAP.md is what the docstrings say."""

from __future__ import annotations

from tests.house import ROOT, written


def test_the_map_is_that_of_the_docstrings() -> None:
    assert (ROOT / "MAP.md").read_text() == written(), "run make generate"


def test_each_file_has_a_line_in_the_map() -> None:
    assert [line for line in written().splitlines() if line.endswith("`: ")] == []
