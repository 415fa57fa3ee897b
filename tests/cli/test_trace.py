"""`gangctl trace` draws what the golden files say. `pytest tests/cli/test_trace.py --regenerate` writes them anew."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Stacks
from gangctl.cli.verbs.trace import print_incident
from gangctl.story.spans import incident_spans
from gangctl.story.words import took
from tests.cli.tracecases import BEGAN, CASES, NOW, incident, job

FOLDER = Path(__file__).parent / "golden"


class Terminal(io.TextIOWrapper):
    """A stream into memory that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def drawn(gang: GangJob, encoding: str = "utf-8", base: str = "") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    print_incident(gang, gang.status.incidents[0], base, NOW, stream)
    return raw.getvalue().decode(encoding)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "OTEL_UI_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def files() -> dict[str, tuple[GangJob, int, str]]:
    """Golden file -> gang, columns, encoding."""
    wide = {name: (gang, 100, "utf-8") for name, gang in CASES.items()}
    narrow = {f"{name}-40": (CASES[name], 40, "utf-8") for name in ("killed", "hostile", "lost-node")}
    ascii_only = {"killed-ascii": (CASES["killed"], 100, "ascii")}
    return {**wide, **narrow, **ascii_only, "lost-node-72": (CASES["lost-node"], 72, "utf-8")}


@pytest.mark.parametrize("name", files())
def test_the_drawing_of_an_incident_equals_its_golden_file(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang, columns, encoding = files()[name]
    monkeypatch.setenv("COLUMNS", str(columns))
    text, path = drawn(gang, encoding, "https://jaeger.example.com"), FOLDER / f"{name}.txt"
    if request.config.getoption("--regenerate"):
        path.write_text(text)
    else:
        assert text == path.read_text()


def test_there_is_a_golden_file_for_each_case_and_no_other() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(files())


@pytest.mark.parametrize("columns", [1, 40, 41, 60, 71, 72, 73, 80, 100, 132, 400])
@pytest.mark.parametrize("name", CASES)
def test_no_line_is_wider_than_the_terminal_and_every_span_has_a_visible_bar(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = drawn(CASES[name])
    link = [line for line in text.splitlines() if "trace" in line]  # an id is never broken
    assert all(cell_len(line) <= max(40, columns) for line in text.splitlines() if line not in link)
    rows = text.split("\n\n")[1].splitlines()[1:]
    timed = [line for line in rows if re.search(r"\d (ms|s|min)\+?(  |$)", line)]
    assert len(timed) == len(incident_spans(CASES[name], CASES[name].status.incidents[0]))
    assert all(set(line) & set("█▏▎▍▌▋▊▉▐▕") for line in timed)
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(text)


def test_without_a_terminal_there_are_100_columns_and_no_colour() -> None:
    text = drawn(CASES["killed"])
    assert max(map(cell_len, text.splitlines())) in range(90, 101)
    assert "\x1b" not in text


def test_a_terminal_has_colours_unless_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_terminal() -> str:
        raw = io.BytesIO()
        stream = Terminal(raw, "utf-8")
        print_incident(CASES["killed"], CASES["killed"].status.incidents[0], "", NOW, stream)
        return raw.getvalue().decode()

    assert "\x1b[" in at_terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in at_terminal()


def test_a_bar_begins_where_the_one_before_it_ends() -> None:
    rows = drawn(CASES["killed"], "ascii").split("\n\n")[1].splitlines()
    bars = {line.split()[1]: (line.index("#"), line.rindex("#")) for line in rows if line.startswith(("|-", "`-"))}
    whole = rows[1].index("#"), rows[1].rindex("#")
    assert bars["stop"][0] == whole[0]
    assert bars["first_step"][1] == whole[1]
    assert bars["stop"][1] < bars["first_step"][0]
    share = (bars["first_step"][1] - bars["first_step"][0] + 1) / (whole[1] - whole[0] + 1)
    assert abs(share - 2297 / 2460) < 0.05


def test_an_incident_from_before_this_release_is_drawn_as_well() -> None:
    old = incident(traceID="", members=[])
    text = drawn(job(old))
    assert "first_step" in text
    assert "MEMBER" not in text.split("\n\n")[1]


def test_stacks_are_drawn_whole_and_can_not_change_the_terminal() -> None:
    frame = f"    all_reduce (/{'long/' * 40}dist.py:12)"
    text = f"process 7 (python)\n  Python:\n{frame}\n[red]\x1b[2J\u202e"
    gang = job(incident(stacks={"member": "worker-1", "text": text}))
    raw = gang.status.incidents[0].model_copy(update={"stacks": Stacks.model_construct(member="世界\u202e", text=text)})
    for one in (gang.status.incidents[0], raw):
        lines = drawn(
            gang.model_copy(update={"status": gang.status.model_copy(update={"incidents": (one,)})})
        ).splitlines()
        assert lines[-4:] == ["process 7 (python)", "  Python:", frame, "[red]\\x1b[2J\\u202e"]
        assert lines[-5].startswith("What the processes of ")
        assert not {"\x1b", "\u202e"} & set(lines[-5])
    assert "What the processes" not in drawn(CASES["killed"])


def test_a_clock_behind_the_controllers_gives_no_negative_times() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "utf-8")
    gang = CASES["open"]
    print_incident(gang, gang.status.incidents[0], "", BEGAN - 3600, stream)
    text = raw.getvalue().decode()
    assert "not over yet" in text
    assert "-3600" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0004, "0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (902.4, "15 min 02 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_have_about_three_digits(seconds: float, text: str) -> None:
    assert took(seconds) == text
