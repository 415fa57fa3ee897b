"""`gangctl timeline` draws what the golden files say. `pytest tests/cli/test_timeline.py --regenerate` writes them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from gangctl.api.status import Spent
from gangctl.cli.verbs.timeline import print_timeline
from gangctl.core.record.conditions import goodput
from gangctl.story.replicas import group_story
from gangctl.story.timeline import Story, story
from tests.cli.tracecases import BEGAN
from tests.explain.timelinecases import CASES, fault, gang

FOLDER = Path(__file__).parent / "golden_timelines"
FILES = {
    **{name: (name, 100, "utf-8") for name in CASES},
    "night-50": ("night", 50, "utf-8"),
    "night-ascii": ("night", 100, "ascii"),
    "hostile-50": ("hostile", 50, "utf-8"),
}
"""Golden file -> case, columns, encoding."""


class Terminal(io.TextIOWrapper):
    """A stream into memory that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def drawn(case: str, encoding: str = "utf-8", kind: type[io.TextIOWrapper] = io.TextIOWrapper) -> str:
    made, seconds = CASES[case]
    raw = io.BytesIO()
    stream = kind(raw, encoding)
    print_timeline(story(made, BEGAN + seconds), stream)
    return raw.getvalue().decode(encoding)


def drawn_lines(told: Story) -> list[str]:
    out = io.StringIO()
    print_timeline(told, out)
    return out.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("name", FILES)
def test_the_drawing_of_a_timeline_equals_its_golden_file(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, columns, encoding = FILES[name]
    monkeypatch.setenv("COLUMNS", str(columns))
    text, path = drawn(case, encoding), FOLDER / f"{name}.txt"
    if request.config.getoption("--regenerate"):
        path.write_text(text)
    else:
        assert text == path.read_text()


def test_there_is_a_golden_file_for_each_timeline_and_no_other() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FILES)


@pytest.mark.parametrize("columns", [1, 50, 71, 72, 80, 100, 132, 200])
@pytest.mark.parametrize("case", CASES)
def test_no_line_is_wider_than_the_terminal_and_no_text_can_change_it(
    case: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = drawn(case)
    hint = [line for line in text.splitlines() if line.startswith("gangctl trace")]  # a command is never broken
    assert all(cell_len(line) <= max(50, columns) for line in text.splitlines() if line not in hint)
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(text)


def test_every_phase_of_an_incident_that_took_time_has_a_letter() -> None:
    (bar,) = [line.split()[-1] for line in drawn("ordinary").splitlines() if line.startswith("to attempt 2")]
    assert "".join(dict.fromkeys(bar)) == "sbtf"
    assert len(bar) == 100 - len("restored step") - 2


def test_what_took_no_time_has_no_bar() -> None:
    at_once = {"outcome": "Suspended", "milliseconds": {"detect": 0, "stop": 0, "barrier": 0}}
    lines = drawn_lines(story(gang(fault(2, 100, **at_once), phase="Suspended"), BEGAN + 200))
    assert "to attempt 2" in [line.rstrip() for line in lines]
    created = story(gang(phase="", startTime=None), BEGAN)
    assert "No replica has run." in drawn_lines(group_story("g", [created, created]))


def test_a_short_incident_and_its_fault_have_a_cell_in_nine_hours() -> None:
    rows = {line.split()[0]: line for line in drawn("night").splitlines() if line.startswith(("gang ", "worker-1 "))}
    at = rows["worker-1"].index("✗")
    assert rows["gang"][at] == "f"


def test_a_terminal_has_colours_unless_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32m" in drawn("ordinary", kind=Terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in drawn("ordinary", kind=Terminal)
    assert "\x1b" not in drawn("ordinary")


def test_a_replica_group_spent_what_its_gangs_spent() -> None:
    made, seconds = CASES["night"]
    spent = Spent(**dict.fromkeys(Spent.model_fields, 1.0))
    one = replace(story(made, BEGAN + seconds), spent=spent)
    both = group_story("g", [one, one])
    assert both.spent == Spent(**dict.fromkeys(Spent.model_fields, 2.0))
    assert both.goodput == goodput(spent)
