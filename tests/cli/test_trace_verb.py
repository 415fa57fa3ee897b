"""`gangctl trace` as it is called: which incident, where Jaeger is, for programs, and what is wrong with the words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.recovery import CheckpointSpec
from gangctl.api.yaml_documents import read
from gangctl.cli.main import main
from gangctl.cli.printers.output import as_json, as_yaml
from gangctl.cli.printers.text import clean
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.story.document import document
from gangctl.story.incidents import incident_story
from gangctl.story.spans import incident_spans
from tests.cli.here import Here, manifest
from tests.cli.kube import job as stored_document
from tests.cli.kube import shell
from tests.cli.tracecases import CASES, NASTY, hostile, incident, is_open, job, linked
from tests.cluster.kube.fakeapi import status
from tests.wait import SECONDS, until

URL = "https://jaeger.example.com"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "OTEL_UI_URL", "GANGCTL_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)


def stored(path: Path, gang: GangJob) -> list[str]:
    """Options that find this gang."""
    store = GangStore(StateDirectory(path).gang("demo"))
    store.write_status(store.create(gang, path), gang.status)
    return ["--state-dir", str(path)]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["trace", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_last_incident_is_shown_and_another_by_the_attempt_that_it_led_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = stored(tmp_path, linked())
    assert asked(capsys, "demo", *place)[1].startswith("demo: attempt 2 to 3, restarted")
    assert asked(capsys, "demo", "--incident", "2", *place)[1].startswith("demo: attempt 1 to 2, restarted")


def test_an_ascii_terminal_gets_ascii_bars(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gangctl", "trace", "demo", *stored(tmp_path, hostile())]
    told = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=told, capture_output=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u" in done.stdout
    assert b"gang.restart" in done.stdout


def test_an_incident_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = asked(capsys, "demo", "--incident", "7", *stored(tmp_path, linked()))
    assert code == 2
    assert err == (
        "error: no incident of demo led to attempt 7: the incidents in the status led to attempts 3, 2 (newest first)\n"
    )


@pytest.mark.parametrize("word", ["-1", "x", "2.0", "²", ""])
def test_an_incident_that_is_no_number_is_rejected(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trace", "demo", f"--incident={word}", *stored(tmp_path, linked())])
    assert ended.value.code == 2
    assert "isn't the number of an attempt" in capsys.readouterr().err


def test_a_gang_without_incidents_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = stored(tmp_path, job())
    assert asked(capsys, "demo", *place) == (
        0,
        f"demo has had no incident; gangctl status {' '.join(place)} demo shows its state\n",
        "",
    )
    assert json.loads(asked(capsys, "demo", "-o", "json", *place)[1])["spans"] == []
    code, _, err = asked(capsys, "demo", "--incident", "2", *place)
    assert (code, err) == (2, "error: no incident of demo led to attempt 2: there was no incident so far\n")


@pytest.mark.parametrize("base", [URL, f"{URL}/", "http://localhost:16686", "http://[::1]:16686/jaeger/"])
def test_the_link_leads_to_the_trace(base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = asked(capsys, "demo", "--ui-url", base, *stored(tmp_path, job(incident())))[1]
    assert f"Jaeger: {base.rstrip('/')}/trace/{'2' * 32}" in out.splitlines()


def test_the_command_line_overrides_the_address_of_jaeger_in_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stored(tmp_path, job(incident()))
    assert "Jaeger:" not in asked(capsys, "demo", *place)[1]
    monkeypatch.setenv("OTEL_UI_URL", "http://from.environment")
    assert "Jaeger: http://from.environment/trace/" in asked(capsys, "demo", *place)[1]
    assert f"Jaeger: {URL}/trace/" in asked(capsys, "demo", "--ui-url", URL, *place)[1]


@pytest.mark.parametrize(
    "base",
    [
        *("jaeger", "jaeger:16686", "ftp://jaeger", "http://", "http://[::1", "http://a:99999", "http://a:x", ""),
        *("http://a b", "http://a/?q=1", "http://a#x", "http://a\x1b[2J", "http://a\nb", "http://ä"),
        *("http://a\u202e", "javascript:alert(1)"),
    ],
)
def test_an_invalid_address_is_rejected_with_its_source(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stored(tmp_path, job(incident()))
    code, out, err = asked(capsys, "demo", "--ui-url", base, *place)
    assert (code, out) == (2, "")
    assert err.startswith("error: --ui-url is ")
    assert "which isn't an http or https address: use one such as https://jaeger.example.com" in err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    if base:
        monkeypatch.setenv("OTEL_UI_URL", base)
        assert asked(capsys, "demo", *place)[2].startswith("error: $OTEL_UI_URL is ")


def test_programs_get_the_incident_and_its_spans_by_stable_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gang = job(incident())
    place = stored(tmp_path, gang)
    found = json.loads(asked(capsys, "demo", "-o", "json", "--ui-url", URL, *place)[1])
    assert set(found) == {"gang", "incident", "spans"}
    assert (found["gang"]["name"], found["gang"]["namespace"], set(found["gang"])) == (
        "demo",
        "research",
        {"name", "namespace", "uid"},
    )
    assert found["incident"] == document(incident_story(gang, gang.status.incidents[0], time.time(), URL))
    assert (found["incident"]["traceID"], found["incident"]["complete"]) == ("2" * 32, True)
    assert found["incident"]["url"] == f"{URL}/trace/{'2' * 32}"
    names = [one.name for one in incident_spans(gang, gang.status.incidents[0])]
    assert [one["name"] for one in found["spans"]] == names
    root, stop = found["spans"][0], next(one for one in found["spans"] if one["name"] == "stop")
    assert set(root) == {"name", "spanID", "begin", "end", "milliseconds", "attributes"}
    assert (root["milliseconds"], root["attributes"]["gang.lost_steps"]) == (2460, 5)
    assert (stop["parentSpanID"], stop["milliseconds"]) == (root["spanID"], 111)
    length = datetime.fromisoformat(stop["end"]) - datetime.fromisoformat(stop["begin"])
    assert round(length.total_seconds() * 1000) == 111
    assert yaml.safe_load(asked(capsys, "demo", "-o", "yaml", "--ui-url", URL, *place)[1]) == found


def test_an_open_span_has_no_end_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(asked(capsys, "demo", "-o", "json", *stored(tmp_path, is_open()))[1])
    assert found["incident"]["complete"] is False
    assert [one["name"] for one in found["spans"] if "end" not in one] == ["gang.restart", "first_step"]
    assert not any(one.get("milliseconds", 0) is None for one in found["spans"])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_for_programs_a_text_that_would_control_a_terminal_is_escaped_and_has_the_same_value(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point = {"step": 50, "tier": "shared", "path": NASTY}
    place = stored(tmp_path, job(incident(), restorePoint=point))
    assert main(["status", "demo", "-o", form, *place]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(out)
    found: Any = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert found["status"]["restorePoint"]["path"] == NASTY
    assert main(["status", "demo", *place]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(out)
    assert clean(NASTY) in out


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_nothing_hostile_in_an_incident_is_passed_on(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "demo", "-o", form, *stored(tmp_path, hostile())]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(out)
    found: Any = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert found["spans"][0]["attributes"]["gang.cause.message"] == clean(NASTY)


@pytest.mark.parametrize("text", [NASTY, "\x7f", "\ud800", "\u2028", "\U000e0041", "世界 ä"])
def test_json_and_yaml_keep_every_text_that_they_escape(text: str) -> None:
    made = as_json({"a": text})
    assert json.loads(made) == {"a": text}
    assert all(clean(line) == line for line in made.split("\n"))
    if text != "\ud800":  # no YAML can hold half of a character
        assert yaml.safe_load(as_yaml({"a": text})) == {"a": text}
        assert all(clean(line) == line for line in as_yaml({"a": text}).split("\n"))


@pytest.mark.parametrize("text", ["1e-3", "-.5", "5.", "018", "0o17", "12:30:00", "y", "N", "no"])
def test_kubectl_reads_each_string_of_the_yaml_as_a_string(text: str) -> None:
    (document,) = read(as_yaml({"a": text}))
    assert document.value == {"a": text}


def test_status_prints_the_trace_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = stored(tmp_path, linked())
    assert main(["status", "demo", *place]) == 0
    assert f"gangctl trace {' '.join(place)} demo --incident 3 shows" in capsys.readouterr().out


def test_status_says_where_an_attempt_began_and_which_checkpoint_there_is_by_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tier = {"name": "shared", "scope": "Shared", "source": {"type": "API"}}
    spec = changed(job().spec, checkpoint=CheckpointSpec.model_validate({"tiers": [tier]}))
    begun: dict[str, Any] = {"startedAttempt": 1, "completedStep": {"tier": "shared", "step": 5000}}
    for number, (known, told) in enumerate(
        (
            ({}, "none yet; an attempt starts at the beginning"),
            (begun, "none, attempt 1 began at the beginning; step 5000 of tier shared is complete now"),
        )
    ):
        place = stored(tmp_path / str(number), changed(job(**known), spec=spec))
        assert main(["status", "demo", *place]) == 0
        assert f"restore point: {told}\n" in capsys.readouterr().out


def test_a_missing_gang_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = asked(capsys, "dmo", *stored(tmp_path, linked()))
    assert code == 2
    assert "did you mean demo?" in err


@pytest.mark.nightly
def test_a_restart_on_this_machine_is_drawn_while_the_gang_runs(folder: Here) -> None:
    folder.write(manifest(replicas=2))
    run = folder.run()
    folder.runs_attempt(1, 2)
    assert folder.gangctl("inject", "g", "worker-1", "--signal", "KILL").returncode == 0
    folder.runs_attempt(2, 2)

    def drawn_with_its_start() -> str:
        out = folder.gangctl("trace", "g").stdout
        return out if "─ start" in out else ""

    drawn = until("the controller knows when the last worker was started", drawn_with_its_start)
    assert drawn.startswith("g: attempt 1 to 2, ")
    assert "worker-1 (rank 1): ended by SIGKILL" in drawn
    run.signal(signal.SIGINT)
    run.wait()


async def test_on_a_cluster_it_needs_the_right_to_get_gangjobs_alone(tmp_path: Path) -> None:
    async with shell(tmp_path) as here:
        told = CASES["killed"].status.model_dump(mode="json", by_alias=True, exclude_none=True)
        await here.api.put("gangjobs", stored_document(**told))

        async def no_other(request: Any) -> Any:
            allowed = request.path.endswith("/gangjobs/demo") and request.method == "GET"
            return None if allowed else status(403, "Forbidden", f"no {request.path}")

        here.api.faults.append(no_other)
        done = await here.gangctl("trace", "demo", "-n", "research", "--ui-url", URL)
        assert (done.code, done.err) == (0, "")
        assert "worker-1 (rank 1): ended by SIGKILL" in done.out
        assert f"{URL}/trace/{'2' * 32}" in done.out
        plugin = await here.gangctl("trace", "demo", "--incident", "9", plugin=True)
        assert "the incident in the status led to attempt 2" in plugin.err
        assert "kubectl gang trace demo --incident 3" in (await here.gangctl("trace", "--help", plugin=True)).out
