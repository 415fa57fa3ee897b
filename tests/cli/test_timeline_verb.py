"""`gangctl timeline` as it is called: files, programs, clusters, and a gang that runs on this machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from gangctl.cli.main import main
from tests.cli.here import Here, manifest
from tests.cli.kube import job as document
from tests.cli.kube import shell
from tests.cli.test_trace_verb import stored
from tests.cluster.kube.fakeapi import status
from tests.explain.timelinecases import CASES
from tests.wait import until


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "GANGCTL_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["timeline", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_page_and_a_picture_are_files_that_stand_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = stored(tmp_path, CASES["ordinary"][0])
    page, picture = tmp_path / "demo.html", tmp_path / "demo.svg"
    code, out, err = asked(capsys, "demo", "--html", str(page), *place)
    assert (code, err) == (0, "")
    assert out.startswith(f"{page} has the timeline of demo until 20")
    assert "default-src 'none'" in page.read_text()
    assert asked(capsys, "demo", "--svg", str(picture), *place)[0] == 0
    assert ET.fromstring(picture.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    code, out, _ = asked(capsys, "demo", "--svg", "-", *place)
    assert out.startswith("<svg ")


def test_a_file_that_can_not_be_written_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "missing" / "demo.html"
    code, out, err = asked(capsys, "demo", "--html", str(where), *stored(tmp_path, CASES["ordinary"][0]))
    assert (code, out) == (2, "")
    assert err == f"error: {where} can't be written: No such file or directory; choose another file\n"


def test_only_one_form_is_made_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["timeline", "demo", "--html", "a", "-o", "json", *stored(tmp_path, CASES["ordinary"][0])])
    assert ended.value.code == 2


def test_programs_get_rows_and_incidents_by_stable_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = stored(tmp_path, CASES["ordinary"][0])
    found = json.loads(asked(capsys, "demo", "-o", "json", *place)[1])
    names = {"gang", "phase", "attempt", "begin", "end", "complete", "sentences", "spent", "attempts", "rows"}
    assert set(found) == {*names, "incidents"}, "goodput is unknown without steps"
    lost, last = found["rows"][0]["bars"][2], found["rows"][0]["bars"][-1]
    assert (lost["kind"], lost["milliseconds"], lost["attempt"]) == ("lost", 1250, 1)
    assert set(last) == {"kind", "begin", "attempt"}, "it goes on"
    (incident,) = found["incidents"]
    assert (incident["restoredStep"], incident["lostSteps"], incident["charged"]) == (50, 5, True)
    assert [(one["kind"], one["milliseconds"]) for one in incident["phases"]][1] == ("stop", 111)
    assert [row["name"] for row in found["rows"]][-1] == "worker-3"
    again = yaml.safe_load(asked(capsys, "demo", "-o", "yaml", *place)[1])
    assert (again["rows"][1], again["incidents"]) == (found["rows"][1], found["incidents"])


@pytest.mark.parametrize("form", ["--html=-", "--svg=-", "-ojson", "-oyaml"])
def test_nothing_hostile_in_a_status_is_passed_on(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = asked(capsys, "demo", form, *stored(tmp_path, CASES["hostile"][0]))
    assert code == 0
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(out)


@pytest.mark.nightly
def test_a_restart_on_this_machine_is_drawn_in_rows(folder: Here) -> None:
    folder.write(manifest(replicas=3))
    run = folder.run()
    folder.runs_attempt(1, 3)
    assert folder.gangctl("inject", "g", "worker-1", "--signal", "KILL").returncode == 0
    folder.runs_attempt(2, 3)

    def drawn_with_its_start() -> list[str]:
        lines = folder.gangctl("timeline", "g").stdout.splitlines()
        return lines if any(set("stop") & set(line[15:]) for line in lines if line.startswith("to attempt 2")) else []

    lines = until("the controller knows when the last worker was started", drawn_with_its_start)
    assert lines[1].startswith("Running, attempt 2, ")
    (row,) = [line for line in lines if line.startswith("worker-1 ")]
    assert "✗" in row
    assert any("worker-1 (rank 1): ended by SIGKILL" in line for line in lines)
    page = folder.path / "g.html"
    assert folder.gangctl("timeline", "g", "--html", str(page)).returncode == 0
    run.signal(signal.SIGINT)
    run.wait()
    assert "at fault once" in page.read_text()


async def test_on_a_cluster_a_timeline_needs_the_right_to_get_gangjobs_alone(tmp_path: Path) -> None:
    async with shell(tmp_path) as here:
        told = CASES["ordinary"][0].status.model_dump(mode="json", by_alias=True, exclude_none=True)
        await here.api.put("gangjobs", document(**told))

        async def no_other(request: Any) -> Any:
            allowed = request.path.endswith("/gangjobs/demo") and request.method == "GET"
            return None if allowed else status(403, "Forbidden", f"no {request.path}")

        here.api.faults.append(no_other)
        done = await here.gangctl("timeline", "demo", "-n", "research")
        assert (done.code, done.err) == (0, "")
        assert "worker-1 (rank 1): ended by SIGKILL" in done.out
        assert "kubectl gang timeline demo" in (await here.gangctl("timeline", "--help", plugin=True)).out
