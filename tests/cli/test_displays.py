"""What users see: lines for pipes, tables, and nothing that a name or a message could do to a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from rich.console import Console, RenderableType

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.status import Condition, MemberSnapshot, Snapshot, Status
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.displays import LiveDisplay, PlainOutput
from gangctl.cli.printers.output import console
from gangctl.cli.printers.text import clean, format_duration, output_line
from tests.cli.here import Here, manifest
from tests.wait import until

NASTY = "[red]x[/red] \x1b[2J\r\n\u202e:smile:"
NOW = 1_000_000.0
KILLED = "worker-1 (rank 1): ended by SIGKILL"


def look(members: list[MemberSnapshot] | None = None, **status: Any) -> GangView:
    found = Status.model_validate(
        {"phase": "Running", "attempt": 1, "phaseTime": NOW, "message": "attempt 1 runs", **status}
    )
    job = GangJob.model_validate({**manifest(), "status": found})
    snapshot = Snapshot(name="g", uid="u", generation=1, time=NOW, status=found, members=tuple(members or []))
    return GangView(job, snapshot, (), live=True)


def member(at: int, **more: Any) -> MemberSnapshot:
    base = {"member": f"worker-{at}", "role": "worker", "pod": f"g-worker-{at}-0", "incarnation": 0, "attempt": 1}
    return MemberSnapshot.model_validate({**base, "connected": True, "phase": "Running", **more})


def incident(**more: Any) -> dict[str, Any]:
    cause = {"reason": "Signal", "member": "worker-1", "rank": 1, "message": "ended by SIGKILL", "time": NOW}
    return {"attempt": 2, "time": NOW, "cause": cause, **more}


def said(*looks: GangView) -> list[str]:
    stream = io.StringIO()
    lines = PlainOutput(stream, lambda: NOW)
    for at, one in enumerate(looks):
        lines.update(one, NOW + at)
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


def test_a_change_is_printed_once_and_members_in_the_same_state_share_a_line() -> None:
    starting = look([member(0, phase="", connected=False), member(1, phase="", connected=False)])
    running = look([member(0), member(1)])
    assert said(starting, starting, running, running) == [
        "g: Running, attempt 1: attempt 1 runs",
        "worker-0, worker-1: its pod is starting",
        "worker-0, worker-1: Running, attempt 1",
    ]


def test_an_incident_is_printed_when_it_is_settled_and_when_its_timings_are_known() -> None:
    settled = incident(settled=True, outcome="Restarted", charged=True, restoredStep=100, lostSteps=7)
    known = {**settled, "milliseconds": {"detect": 3, "stop": 12, "barrier": 1, "start": 8}}
    whole = {**settled, "milliseconds": {**known["milliseconds"], "firstStep": 900}}
    assert said(look(), *(look(incidents=[one]) for one in (incident(), settled, known, known, whole)))[1:] == [
        f"incident to attempt 2: {KILLED} [Process, charged]; restored from step 100, 7 steps lost",
        "attempt 2 runs again (seconds): detect 0.003, stop 0.012, barrier 0.001, start 0.008",
        (
            "attempt 2 has completed a step (seconds): "
            "detect 0.003, stop 0.012, barrier 0.001, start 0.008, first step 0.900"
        ),
    ]


def test_an_incident_that_led_to_no_attempt_restored_nothing() -> None:
    failed = incident(settled=True, outcome="Failed", charged=True, restoredStep=100)
    assert said(look(), look(incidents=[failed]))[1:] == [f"incident to attempt 2: {KILLED} [Process, charged, failed]"]
    out = console(io.StringIO())
    out.print(tables.incidents([Incident.model_validate(failed)]))
    assert isinstance(out.file, io.StringIO)
    assert "100" not in out.file.getvalue()


def test_on_a_cluster_the_message_says_who_is_awaited() -> None:
    waits = {"phase": "Gathering", "message": "attempt 1 waits for worker-1"}
    pods = [member(at, connected=False, phase="", pod_status="Running") for at in (0, 1)]
    stream = io.StringIO()
    lines = PlainOutput(stream, lambda: NOW)
    for after in (0, 11):
        lines.update(look(pods, **waits), NOW + after)
    assert stream.getvalue().splitlines()[-1].endswith("g: Gathering for 11 s: attempt 1 waits for worker-1")


def test_a_check_before_the_first_attempt_is_printed_once_and_drawn() -> None:
    one = {"name": "disk", "result": "Passed", "members": 2, "time": NOW, "milliseconds": 1500}
    failed = {**one, "result": "Failed", "failures": 1, "failed": [{"member": "worker-1", "detail": "read error"}]}
    told = "check disk failed in 1 of 2, 1.50 s; worker-1: read error"
    looks = [look(checks={"attempt": 1, "results": results}) for results in ([], [failed], [failed, one])]
    assert said(*looks)[1:] == [told, "check disk passed (2 checked), 1.50 s"]
    out = console(io.StringIO())
    drawn = LiveDisplay(out, ())
    drawn.update(looks[1], NOW)
    drawn.close()
    assert isinstance(out.file, io.StringIO)
    assert told in out.file.getvalue()
    kept = look(checks={"attempt": 1, "results": [failed]}, incidents=[incident(checks=[failed])])
    assert told not in said(kept), "the incident has it"
    assert told not in said(look(checks={"attempt": 0, "results": [failed]}))


def test_a_line_of_one_of_several_gangs_begins_with_its_name() -> None:
    stream = io.StringIO()
    lines = PlainOutput(stream, lambda: NOW, "at")
    for text in ("the gang waits for a node", "at: Running", "at has succeeded"):
        lines.note(text)
    said = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert said == ["at: the gang waits for a node", "at: Running", "at has succeeded"]


def test_incidents_before_a_takeover_are_not_printed_again() -> None:
    past = look(incidents=[incident(settled=True, outcome="Restarted", milliseconds={"start": 5})])
    assert said(past) == ["g: Running, attempt 1: attempt 1 runs"]


def test_a_waiting_gang_prints_the_missing_members() -> None:
    stream = io.StringIO()
    lines = PlainOutput(stream, lambda: NOW)
    waiting = look([member(0, phase="Ready"), member(1, phase="Stopping")], phase="Gathering")
    lines.update(waiting, NOW)
    lines.update(waiting, NOW + 11)
    assert stream.getvalue().splitlines()[-1].endswith("g: Gathering for 11 s: waiting for worker-1")


def test_nothing_in_a_message_reaches_the_terminal_as_markup_or_control() -> None:
    nasty = incident(settled=True, outcome="Restarted", cause={**incident()["cause"], "message": NASTY})
    one = look([member(0, pod=NASTY)], message=NASTY, incidents=[nasty])
    stream = io.StringIO()
    lines = PlainOutput(stream, lambda: NOW)
    lines.update(look(), NOW)
    lines.update(one, NOW)
    lines.output("worker-0", NASTY)
    out = console(stream)
    for part in (
        tables.head(one, NOW),
        tables.members_table(one.snapshot.members, 10, live=True),
        tables.incidents(one.snapshot.status.incidents),
    ):
        out.print(part)
    text = stream.getvalue()
    assert "[red]x[/red]" in text
    assert ":smile:" in text
    assert r"\x1b[2J\x0d\x0a\u202e" in text
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_a_gang_that_hangs_is_shown_so_wherever_its_phase_is() -> None:
    hang = Condition(type="Degraded", status="True", reason="Hang", message="m", last_transition_time=NOW)
    hung, runs = look(conditions=(hang,)), look()
    assert "Running, and hangs" in "".join(_drawn(tables.head(hung, NOW), 100))
    rows = _drawn(tables.gangs_table([hung, runs], NOW, wide=False, everywhere=False), 100)[1:]
    assert ["Running, and hangs" in row for row in rows] == [True, False]


def _drawn(part: RenderableType, width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width, height=20)
    with out.capture() as captured:
        out.print(part)
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, ["MEMBER", "RANK", "PHASE", "ATTEMPT", "STEP", "RESTARTS", "POD"]),
        (60, ["MEMBER", "RANK", "PHASE", "ATTEMPT", "STEP", "RESTARTS"]),
        (50, ["MEMBER", "RANK", "PHASE", "ATTEMPT", "STEP"]),
        (40, ["MEMBER", "RANK", "PHASE", "STEP"]),
        (20, ["MEMBER", "PHASE"]),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_and_whole_members(width: int, columns: list[str]) -> None:
    members = [member(at, step=100, restarts=0) for at in (0, 11)]
    head, *rows = _drawn(tables.members_table(members, 10, live=True), width)
    assert head.split() == columns
    assert [row.split()[0] for row in rows] == ["worker-0", "worker-11"]
    assert all("…" not in row and "Running" in row for row in rows)


@pytest.mark.parametrize("width", [40, 50, 80])
def test_causes_and_conditions_are_wrapped_where_there_is_little_room(width: int) -> None:
    settled = [Incident.model_validate(incident(settled=True, outcome="Restarted"))]
    drawn = _drawn(tables.incidents(settled), width)
    assert drawn[0].split()[-1] == "CAUSE"
    assert all(len(line) <= width and "…" not in line for line in drawn)
    text = "".join(drawn[1:]).replace(" ", "")
    assert KILLED.replace(" ", "") in text
    assert len(drawn) <= 8
    found = [
        Condition(type="Ready", status="True", reason="Running", message="attempt 1 runs", last_transition_time=NOW)
    ]
    assert all(len(line) <= width and "…" not in line for line in _drawn(tables.conditions(found), width))


def test_the_list_of_gangs_has_room_on_a_narrow_terminal() -> None:
    listed = tables.gangs_table([look()], NOW, wide=False, everywhere=False)
    assert _drawn(listed, 80)[0].split() == ["NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE"]
    assert _drawn(listed, 40)[0].split() == ["NAME", "PHASE", "READY", "RESTARTS", "STEP"]
    assert _drawn(listed, 30)[0].split() == ["NAME", "PHASE", "READY"]


@pytest.mark.nightly
def test_a_member_that_has_finished_does_not_run(folder: Here) -> None:
    folder.write(manifest(("sh", "-c", "[ $RANK = 0 ] || exec sleep 1000"), 2))
    run = folder.run("--plain")
    until("one has finished", lambda: "worker-0: has finished" in run.said)
    rows = [line.split()[:3] for line in folder.gangctl("status", "g").stdout.splitlines() if "worker-" in line]
    assert rows == [["worker-0", "0", "Finished"], ["worker-1", "1", "Running"]]
    many = [member(0, finished=True), *(member(at) for at in range(1, 9))]
    assert "and 6 more; 8 of 9 run" in "".join(_drawn(tables.members_table(many, 3, live=True), 80))


def test_of_many_members_those_that_do_not_run_are_shown_first() -> None:
    many = [member(at, step=at) for at in range(20)]
    many[17] = member(17, phase="Stopping")
    assert [one.member for one in tables.choose_members(many, 3)] == ["worker-0", "worker-1", "worker-17"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (0, "0s"), (119, "119s"), (192, "3m12s"), (18_120, "5h02m"), (356_400, "4d03h")]
)
def test_ages_look_as_in_kubectl(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_line_of_output_is_the_last_state_that_a_terminal_would_show() -> None:
    assert output_line("\x1b[32m10%\x1b[0m\r 20%\r 30%\tx\r") == " 30%    x"
    assert clean("Grüße, 世界") == "Grüße, 世界"


@pytest.mark.parametrize("columns", ["40", "120"])
def test_the_live_view_on_a_terminal_leaves_it_as_it_was(folder: Here, columns: str) -> None:
    folder.write(manifest(replicas=1))
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "gangctl", "run", "job.yaml"]
    env = folder.env(TERM="xterm", COLUMNS=columns, LINES="30")
    with subprocess.Popen(command, cwd=folder.path, env=env, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        os.set_blocking(ours, False)
        seen = bytearray()

        def sees(text: str) -> bool:
            with suppress(OSError):
                seen.extend(os.read(ours, 1 << 16))
            return text in seen.decode(errors="replace")

        until("the member is drawn", lambda: sees("worker-0   0      "))
        folder.runs_attempt(1, 1)
        run.send_signal(signal.SIGINT)
        until("the end is drawn", lambda: sees("no process of g is left"))
        until("the cursor is shown again", lambda: sees("\x1b[?25h"))
        last = seen.decode(errors="replace").rpartition("Stopped")[2]
        assert "Ctrl-C: every process was ended" in last.replace("\r\n", " ")
        assert "Running" not in last
        assert "Ctrl-C: end it" not in last
        until("it ends", lambda: sees("") and run.poll() is not None)  # it may wait until its output is read
        assert run.returncode == 130
    os.close(ours)


def test_status_shows_why_a_gang_restarted_and_what_was_lost(folder: Here) -> None:
    folder.write(manifest(("sh", "-c", "[ $GANG_ATTEMPT = 1 ] && exit 3; sleep 0.2"), 2))
    assert folder.run().wait() == 0
    listed = folder.gangctl("status", "-o", "wide").stdout.splitlines()
    assert listed[0].split() == ["NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE", "REASON", "RESTORE"]
    assert listed[1].split()[:5] == ["g", "Succeeded", "2/2", "2", "1"]
    assert listed[1].split()[-2:] == ["ExitCode", "-"]
    details = folder.gangctl("status", "g").stdout
    assert "exit code 3 [Process, charged]" in details
    assert "controller answers" not in details
    assert "because: every worker that the success policy counts has ended with exit code 0" in details
    near = folder.gangctl("status", "gg")
    assert near.returncode == 2
    assert "did you mean g?" in near.stderr
