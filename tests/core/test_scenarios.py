"""Every scenario file gives what it says. `pytest tests/core/test_scenarios.py --regenerate` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scenario import parse, play, render

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(path for path in FOLDER.glob("*.txt") if path.name != "README.txt")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_gives_what_its_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    blocks = parse(path.read_text())
    played = play(blocks)
    if request.config.getoption("--regenerate"):
        path.write_text(render(played))
    else:
        assert render(played) == path.read_text()


def test_every_scenario_begins_with_the_rule_that_it_shows() -> None:
    assert FILES
    for path in FILES:
        assert path.read_text().startswith("# "), path.name


def test_rendering_a_parsed_file_gives_the_same_file() -> None:
    for path in FILES:
        assert render(parse(path.read_text())) == path.read_text(), path.name
