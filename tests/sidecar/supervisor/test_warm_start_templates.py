"""When templates are made, and when one is given up. No process is started: they are stood in for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gangsidecar.supervisor import processes, warm_start
from gangsidecar.supervisor.fork_trust import LEAST_MS
from gangsidecar.supervisor.import_lists import ImportLists
from gangsidecar.supervisor.warm_start import READY_MS, TEMPLATES, WarmSettings, WarmStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


class Loop:
    """Keeps what is to be called later."""

    def __init__(self) -> None:
        self.due: list[tuple[int, Callable[[], None]]] = []

    def at(self, when: int, call: Callable[[], None]) -> None:
        self.due.append((when, call))

    def watch(self, *_: Any) -> None:
        """Nothing is read."""

    def forget(self, *_: Any) -> None:
        """Nothing is read."""


class World:
    """A warm start whose templates are no processes, and its clock."""

    def __init__(self, imports: Path) -> None:
        self.now, self.loop, self.made = 0, Loop(), list[warm_start.Template]()
        lists = ImportLists(str(imports.with_name("known-imports")), "g1", "worker-0", "pod-0")
        socket = str(imports.with_name("socket"))
        settings = WarmSettings("Auto", ("python3", "train.py"), {}, str(imports), socket, lists)
        self.warm = WarmStart(self.loop, settings, set(), lambda _: None)  # type: ignore[arg-type]
        self.attempt = 0

    def spawn(self, *_: Any) -> int:
        return os.getpid()

    def first_step(self) -> warm_start.Template:
        """The next attempt makes its first step; returns its template."""
        self.attempt += 1
        self.warm.new_attempt(self.attempt)
        self.warm.stepped(self.attempt)
        found = self.warm._template  # noqa: SLF001 - nothing else tells it
        assert found is not None
        return found

    def pass_time(self, milliseconds: int) -> None:
        """Call what is due by then."""
        self.now += milliseconds
        due, self.loop.due = self.loop.due, []
        for when, call in due:
            call() if when <= self.now else self.loop.at(when, call)


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], int]]:
    found: list[tuple[list[int], int]] = []
    monkeypatch.setattr(processes, "send", lambda pids, signum: found.append((list(pids), signum)))
    return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, signalled: list[Any]) -> Iterator[World]:
    assert signalled == []
    made = World(tmp_path / "imports")
    (tmp_path / "imports").write_text("decimal\n")
    monkeypatch.setattr(processes, "spawn", made.spawn)
    monkeypatch.setattr(warm_start, "send", lambda *_, **__: None)
    monkeypatch.setattr(warm_start, "now_ms", lambda: made.now)
    monkeypatch.setattr(warm_start, "now_ms", lambda: made.now)
    yield made
    made.warm.handovers.close()


def test_a_template_that_has_been_reaped_gets_no_signal(world: World, signalled: list[tuple[list[int], int]]) -> None:
    found = world.first_step()
    found.obstacle = ""
    assert world.warm.ended(os.getpid(), signal.SIGKILL)  # Its pid may be another process's by now.
    assert (found.is_over, signalled) == (True, [])
    again = world.first_step()
    world.warm.end()
    assert (again.is_over, signalled) == (True, [([os.getpid()], signal.SIGKILL)])


def test_a_template_that_was_asked_again_has_the_whole_time_again(world: World, tmp_path: Path) -> None:
    found = world.first_step()
    world.pass_time(READY_MS - 1)
    found.obstacle = ""  # It has imported all that it was asked for.
    (tmp_path / "imports").write_text("decimal\nfractions\n")
    assert world.first_step() is found
    world.pass_time(1)
    assert not found.is_over
    world.pass_time(READY_MS)
    assert found.is_over


def test_what_a_worker_writes_among_its_imports_is_no_module(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(warm_start, "send", lambda *_, **message: asked.append(message["preload"]))
    wrong = ("", "12", "..up", "a b", "a/b", "os;", "\N{SNOWMAN}", "x" * 256)
    text = "\n".join(("decimal", *wrong, "fractions.x", ""))
    monkeypatch.setattr(warm_start, "RECORD_BYTES", len(text.encode()))
    (tmp_path / "imports").write_text(f"{text}beyond\n")
    world.first_step()
    world.warm.end()
    assert asked == [["decimal", "fractions.x"]]


def test_so_many_templates_are_made_and_no_more(world: World) -> None:
    made: Sequence[warm_start.Template] = []
    for _ in range(TEMPLATES):
        found = world.first_step()
        assert found not in made
        made = [*made, found]
        found.end("it hinders a fork")
    assert world.first_step() is made[-1]


@pytest.mark.parametrize("is_alive", [False, True])
def test_a_fork_is_late_while_it_runs(world: World, monkeypatch: pytest.MonkeyPatch, *, is_alive: bool) -> None:
    found = world.first_step()
    found.obstacle = ""
    with subprocess.Popen(["sleep", "1000"]) as process:
        if not is_alive:
            process.kill()
            process.wait()
        monkeypatch.setattr(found, "fork", lambda *_: (process.pid, socket.socket()))
        world.warm.new_attempt(2)
        world.warm.spawn(["python3", "train.py"], {})[1].close()
        world.pass_time(LEAST_MS - 1)
        assert (world.warm.report.forked, world.warm.report.late_after_seconds) == (1, 0)
        world.pass_time(1)
        assert world.warm.report.late_after_seconds == (LEAST_MS // 1000 if is_alive else 0)
        process.kill()
    world.warm.end()
