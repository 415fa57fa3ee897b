"""`gangctl status --watch` into a pipe: lines as they change, until its reader is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangctl.api.model import changed
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers.displays import Rows
from gangctl.cli.targets.local import LocalTarget
from tests.cli.here import Here, manifest
from tests.cli.test_displays import NOW, look
from tests.wait import SECONDS, until

WAITS = ("sh", "-c", "exec sleep 1000")


@contextmanager
def watching(folder: Here, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    out = folder.path / "watched"
    with (
        out.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "gangctl", "status", *words, "--watch"],
            cwd=folder.path,
            env=folder.env(),
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as child,
    ):
        yield child, out
        child.kill()


@pytest.mark.nightly
def test_all_gangs_are_watched_as_rows_of_what_has_changed(folder: Here) -> None:
    folder.write(manifest(WAITS, 1))
    folder.run()
    until("it runs", lambda: len(folder.workers()) == 1)
    with watching(folder) as (child, out):
        until("the gang is listed", lambda: out.read_text().count("\n") >= 2)
        assert folder.gangctl("restart", "g").returncode == 0
        rows = until("the next attempt is printed", lambda: _rows(out, ["g", "Running", "1/1", "2"]))
        assert rows[0] == ["NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE"]
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS) == 0


def _rows(out: Path, last: list[str]) -> list[list[str]] | None:
    rows = [line.split() for line in out.read_text().splitlines()]
    return rows if rows[-1][: len(last)] == last else None


def test_one_gang_is_watched_as_lines_and_its_end_is_said(folder: Here) -> None:
    folder.write(manifest(WAITS, 1))
    run = folder.run()
    until("it runs", lambda: len(folder.workers()) == 1)
    with watching(folder, "g") as (child, out):
        until("its state is printed", lambda: "worker-0: Running, attempt 1" in out.read_text())
        folder.gangctl("restart", "g")
        until("the change is printed", lambda: "g: Running, attempt 2" in out.read_text())
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert child.wait(SECONDS) == 2
        assert "was removed: gangctl logs g, why, trace and timeline still tell of it" in out.read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("words", [(), ("g",)])
def test_a_watch_ends_with_its_reader_though_nothing_changes(folder: Here, words: tuple[str, ...]) -> None:
    folder.write(manifest(WAITS, 1))
    folder.run()
    until("it runs", lambda: len(folder.workers()) == 1)
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "gangctl", "status", *words, "--watch"],
        cwd=folder.path,
        env=folder.env(),
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as child:
        os.close(theirs)
        assert os.read(ours, 1)
        os.close(ours)
        assert child.wait(SECONDS) == 141
        assert child.stderr is not None
        assert b"rror" not in child.stderr.read()


def test_a_row_is_printed_when_something_other_than_its_age_has_changed(
    folder: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Rows(LocalTarget(folder.state), wide=False, everywhere=False)
    first, second, other = look(ready="1/2"), look(ready="2/2"), _named("longer-name", ready="9/9")
    views: list[Sequence[GangView]] = [[], [first], [first], [second, other], [other], [other]]
    for at, one in enumerate(views):
        rows.show(one, NOW + at)
    done = capsys.readouterr()
    assert done.err == f"there are no gangs in {folder.state.path} yet\n"
    assert [line.split()[:3] for line in done.out.splitlines()] == [
        ["NAME", "PHASE", "READY"],
        ["g", "Running", "1/2"],
        ["g", "Running", "2/2"],
        ["longer-name", "Running", "9/9"],
        ["g", "Deleted", "2/2"],
    ]


def _named(name: str, ready: str) -> GangView:
    view = look(ready=ready)
    job = changed(view.job, metadata=changed(view.job.metadata, name=name, uid=name))
    return GangView(job, view.snapshot, (), live=True)
