"""The worker's own words: a script that fails says why in `run`, `status`, `trace`, the conditions and the Events."""

from __future__ import annotations

import json
import sys

import pytest

from gangctl.api.incident import Incident
from gangctl.core.facts.printed import MAX_LINES, MAX_OUTPUT_BYTES
from tests.cli.here import Here, Running, manifest

ERROR = "RuntimeError: no dataset at /data"
QUOTED = f'worker-1 (rank 1): exit code 1, printed "{ERROR}"'
RAISES = 'raise RuntimeError("no dataset at /data")'
FAILS = f"""
import os, sys, time
print("loading", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "1":
    {RAISES}
time.sleep(1000)
"""


def fails(folder: Here, script: str, *, restarts: int = 0, replicas: int = 1) -> Running:
    """Run a script until the gang has failed."""
    command = (sys.executable, "-c", script)
    folder.write(
        manifest(command, replicas, recovery={"budget": {"maxRestarts": restarts}, "evidenceWindowSeconds": 1})
    )
    run = folder.run("--plain")
    assert run.wait() == 1
    return run


def newest(folder: Here) -> Incident:
    return folder.job.status.incidents[0]


def test_the_sentence_of_a_script_that_fails_stands_everywhere(folder: Here) -> None:
    run = fails(folder, FAILS, restarts=1, replicas=2)
    printed = run.out.read_text().splitlines()
    assert any(f"incident to attempt 2: {QUOTED} [Process, charged]" in one for one in printed)
    assert any(f"g has failed: {QUOTED}; the budget is used up" in one for one in printed)
    status = folder.gangctl("status", "g").stdout
    assert f"because: {QUOTED}; the budget is used up" in status
    assert "What worker-1 printed last:\n  loading 1\n  Traceback (most recent call last):\n" in status
    assert f"  {ERROR}\n" in status
    trace = folder.gangctl("trace", "g").stdout
    assert "What worker-1 printed last:\n  loading 1\n" in trace
    assert "on node localhost" not in " ".join(trace.split())
    assert ERROR in json.loads(folder.gangctl("trace", "g", "-o", "json").stdout)["incident"]["output"]["text"]
    stored = folder.job.status
    assert [QUOTED in one.message for one in stored.conditions if one.type == "Failed"] == [True]
    assert [one.cause.printed for one in stored.incidents] == [ERROR, ERROR]
    events = [json.loads(line) for line in folder.state.gang("g").events.read_text().splitlines()]
    ends = [one for one in events if one["reason"] in {"Restarted", "BudgetExhausted"}]
    assert [QUOTED in one["message"] for one in ends] == [True, True]


@pytest.mark.nightly
def test_what_a_worker_writes_as_its_termination_message_is_told_beside_what_it_printed(folder: Here) -> None:
    run = fails(folder, f'import os; open(os.environ["GANG_TERMINATION_LOG"], "w").write("mount it"); {RAISES}')
    told = f'worker-0 (rank 0): exit code 1: mount it, printed "{ERROR}"'
    assert any(f"g has failed: {told}; the budget is used up" in one for one in run.out.read_text().splitlines())
    assert told in folder.gangctl("status", "g").stdout


@pytest.mark.nightly
def test_a_worker_that_prints_nothing_does_not_get_the_words_of_the_attempt_before(folder: Here) -> None:
    script = 'import os, sys\nif os.environ["GANG_ATTEMPT"] == "1":\n    print("first")\nsys.exit(3)'
    fails(folder, script, restarts=1)
    last, first = folder.job.status.incidents
    assert (first.cause.printed, first.output and first.output.text) == ("first", "first")
    assert (last.cause.printed, last.output) == ("", None)
    assert "printed" not in folder.job.status.message


@pytest.mark.nightly
@pytest.mark.parametrize(
    "content",
    [
        'bytes(range(256)) * 40 + b"\\n\\x1b[2J\\x1b]0;title\\x07 the end"',
        'b"x " * 50_000 + b"\\n" + b"y " * 50_000',
        'b"token=hunter2hunter2\\n" * 200',
    ],
)
def test_whatever_a_worker_prints_is_kept_as_a_few_lines_of_text(folder: Here, content: str) -> None:
    run = fails(folder, f"import sys\nsys.stdout.buffer.write({content})\nsys.stdout.flush()\nsys.exit(1)")
    incident = newest(folder)
    assert incident.output is not None
    lines = incident.output.text.split("\n")
    assert 0 < len(lines) <= MAX_LINES
    assert len(incident.output.text.encode()) <= MAX_OUTPUT_BYTES
    assert all(line.isprintable() for line in lines)
    assert incident.cause.printed in folder.gangctl("status", "g").stdout.replace("\n", " ") or len(lines[-1]) > 80
    assert "hunter2" not in folder.job.status.model_dump_json()
    assert "\x1b" not in run.out.read_text().partition("has failed")[2]
