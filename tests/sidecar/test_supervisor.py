"""The supervisor as it is shipped: the zipapp, with real processes, and a sidecar that is played by the test."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangsidecar import bundle, wire
from gangsidecar.supervisor import processes
from gangsidecar.wire import (
    Checkpoint,
    Directive,
    Phase,
    Ping,
    Process,
    Progress,
    Report,
    Restore,
    Run,
    Scan,
    Scanned,
    Tier,
    Verb,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 20.0
GRACE = 10_000
SLEEP = ("sleep", "1000")


def wait_for(condition: Callable[[], Any]) -> Any:
    """The first true value of the condition."""
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, "the condition never came"
        time.sleep(0.005)
    return value


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def pids(file: Path) -> list[int]:
    return [int(one) for one in file.read_text().split()] if file.exists() else []


def text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


class Sidecar:
    """The listening end of the socket."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._server.settimeout(DEADLINE)
        self._connection: socket.socket | None = None
        self._unread = b""
        self.last: Report | None = None

    def accept(self) -> None:
        """Take the next connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection, _ = self._server.accept()
        self._connection.settimeout(DEADLINE)
        self._unread = b""
        self.last = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._server.close()

    def send(self, *messages: Any) -> None:
        self.send_line("\n".join(map(wire.encode, messages)))

    def send_line(self, text: str) -> None:
        assert self._connection is not None
        self._connection.sendall(text.encode() + b"\n")

    def receive(self) -> Any:
        assert self._connection is not None
        while b"\n" not in self._unread:
            piece = self._connection.recv(1 << 16)
            if not piece:
                raise ConnectionError("the supervisor closed the connection")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return wire.decode(line)

    def until(self, condition: Callable[[Report], Any]) -> Report:
        """The first report that fits."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            message = self.receive()
            if isinstance(message, Report):
                self.last = message
                if condition(message):
                    return message
        raise AssertionError("no such report came")

    def scanned(self) -> Scanned:
        while not isinstance(message := self.receive(), Scanned):
            assert isinstance(message, Report)
        return message


class Member:
    """A supervisor with the sidecar beside it."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.folder = folder
        self.pod = str(uuid.uuid4())
        self.state = folder / "state"
        self.sidecar = Sidecar(folder / "socket")
        self.process: subprocess.Popen[bytes] | None = None
        self._archive = archive

    def start(self, *command: str, fsize: int = -1, **flags: str) -> Report:
        """Start a session; gives its first report."""
        self.launch(*command, fsize=fsize, **flags)
        self.sidecar.accept()
        return self.sidecar.until(lambda report: report.phase is Phase.IDLE)

    def launch(self, *command: str, fsize: int = -1, **flags: str) -> None:
        values = {
            "socket": str(self.folder / "socket"),
            "state": str(self.state),
            "gang": "g1",
            "member": "worker-0",
            "pod": self.pod,
            "address": "127.0.0.1",
            **flags,
        }
        given = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-IS", str(self._archive), "run", *given, "--", *command],
                env={**os.environ, "DIR": str(self.folder)},
                stderr=log,
            )
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (fsize, -1))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def file(self, name: str = "pids") -> Path:
        return self.folder / name

    def directive(self, attempt: int, verb: Verb, **more: Any) -> Directive:
        return Directive(**{"gang": "g1", "pod": self.pod, "attempt": attempt, "verb": verb, "grace_ms": GRACE, **more})

    def hold(self, attempt: int, **more: Any) -> Report:
        self.sidecar.send(self.directive(attempt, Verb.HOLD, **more))
        return self.sidecar.until(lambda report: report.phase is Phase.READY and report.attempt == attempt)

    def order(
        self,
        report: Report,
        *envs: dict[str, str],
        restore: Restore | None = None,
        hosts: tuple[str, ...] = (),
        **more: Any,
    ) -> Directive:
        started = tuple(Process(local_rank=at, rank=at, env=tuple(env.items())) for at, env in enumerate(envs or ({},)))
        run = Run(report.session, started, restore=restore, hosts=hosts)
        return self.directive(report.attempt, Verb.RUN, run=run, **more)

    def run(self, report: Report, *envs: dict[str, str], **more: Any) -> Report:
        self.sidecar.send(self.order(report, *envs, **more))
        return self.sidecar.until(lambda told: told.phase is Phase.RUNNING)

    def train(self, *command: str) -> Report:
        """Start, Hold(1), Run(1)."""
        self.start(*command)
        return self.run(self.hold(1))

    def finish(self, attempt: int) -> Report:
        self.sidecar.send(self.directive(attempt, Verb.FINISH))
        report = self.sidecar.until(lambda told: told.phase is Phase.DONE)
        assert self.wait() == 0
        return report

    def ended(self) -> Report:
        """The first report with an end of a process."""
        last = self.sidecar.last
        return last if last is not None and last.ends else self.sidecar.until(lambda report: report.ends)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE)

    def workers(self) -> list[int]:
        return wait_for(lambda: pids(self.file()))  # type: ignore[no-any-return]

    def clean_up(self) -> None:
        self.sidecar.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        while left := processes.marked(self.pod):
            processes.send(left, signal.SIGKILL)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A memory cgroup (v1: there only the process is killed that took too much) of 64 MB."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":")[2] for line in lines if "memory" in line.split(":")[1].split(",")]
    group = Path(f"/sys/fs/cgroup/memory{''.join(paths)}/{uuid.uuid4()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("no right to make a memory cgroup of version 1")
    yield group
    group.rmdir()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "supervisor.pyz"
    bundle.build(path)
    return path


@pytest.fixture
def member(archive: Path, tmp_path: Path) -> Iterator[Member]:
    one = Member(archive, tmp_path)
    yield one
    one.clean_up()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-IS", "-c", code)


def shell(code: str) -> tuple[str, ...]:
    """A shell that first notes its pid; a dollar is doubled, as everywhere in a pod's command."""
    return ("sh", "-c", f'echo $$ >> "$DIR/pids"; {code}'.replace("$$", "$$$$"))


class TestLife:
    def test_hold_run_and_finish(self, member: Member) -> None:
        first = member.start(*shell("sleep 1000 & wait"))
        assert (first.attempt, first.gang, first.member, first.pod) == (0, "g1", "worker-0", member.pod)
        ready = member.hold(1)
        assert (ready.session, ready.stop_ms) == (first.session, None)
        report = member.run(ready)
        assert report.attempt == 1
        (worker,) = member.workers()
        assert is_alive(worker)
        done = member.finish(1)
        assert done.ends[0].stopped
        assert not is_alive(worker)

    def test_each_attempt_starts_the_worker_anew_in_the_same_supervisor(self, member: Member) -> None:
        member.train(*shell("exec sleep 1000"))
        for attempt in range(2, 5):
            wait_for(lambda: bool(pids(member.file())) and is_alive(pids(member.file())[-1]))
            report = member.run(member.hold(attempt))
            assert report.attempt == attempt
        workers = wait_for(lambda: len(pids(member.file())) == 4 and pids(member.file()))
        assert [is_alive(pid) for pid in workers] == [False, False, False, True]
        member.finish(4)

    def test_reports_are_counted_through_the_session(self, member: Member) -> None:
        first = member.start(*SLEEP)
        assert member.hold(1).seq > first.seq

    def test_a_worker_that_exits_with_zero_holds_its_supervisor_until_finish(self, member: Member) -> None:
        member.train("true")
        report = member.ended()
        assert (report.phase, report.ends[0].exit_code, report.ends[0].stopped) == (Phase.RUNNING, 0, False)
        member.finish(1)

    def test_how_fast_a_worker_is_stopped_and_started(self, member: Member, capsys: pytest.CaptureFixture[str]) -> None:
        member.train(*SLEEP)
        stops, starts = [], []
        for attempt in range(2, 22):
            begin = time.perf_counter()
            ready = member.hold(attempt)
            stopped = time.perf_counter()
            member.run(ready)
            starts.append(time.perf_counter() - stopped)
            stops.append(stopped - begin)
        with capsys.disabled():
            median = len(stops) // 2
            print(f"\nstop {sorted(stops)[median] * 1e3:.1f} ms, start {sorted(starts)[median] * 1e3:.1f} ms")  # noqa: T201

    def test_it_stays_small(self, member: Member) -> None:
        """Under 15 MB after some work, without what the interpreter maps from files that all of them share."""
        report = member.train(*SLEEP)
        for attempt in range(2, 12):
            report = member.run(member.hold(attempt))
        member.sidecar.send(*(Checkpoint("ram", step, 0, report.attempt, f"/dev/shm/{step}") for step in range(300)))
        member.sidecar.until(lambda told: told.checkpoints and told.checkpoints[0].step == 299)
        status = Path(f"/proc/{member.pid}/status").read_text()
        (kilobytes,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        assert kilobytes < 15 << 10


class TestEnds:
    def test_a_worker_killed_by_a_signal_is_told_as_it_was(self, member: Member) -> None:
        member.train(*shell("exec sleep 1000"))
        (worker,) = member.workers()
        os.kill(worker, signal.SIGKILL)
        (end,) = member.ended().ends
        assert (end.signal, end.exit_code, end.stopped, end.attempt, end.rank) == (signal.SIGKILL, None, False, 1, 0)

    def test_a_worker_killed_for_want_of_memory_says_so(self, small_group: Path, member: Member) -> None:
        member.start(*python("bytearray(256 << 20)"))
        (small_group / "cgroup.procs").write_text(str(member.pid))
        member.run(member.hold(1))
        (end,) = member.ended().ends
        assert (end.signal, end.oom) == (signal.SIGKILL, True)

    def test_a_natural_end_that_races_with_a_hold_is_natural(self, member: Member) -> None:
        member.train(*shell("exec sleep 1000"))
        (worker,) = member.workers()
        os.kill(member.pid, signal.SIGSTOP)
        os.kill(worker, signal.SIGSEGV)
        wait_for(lambda: is_zombie(worker))
        member.sidecar.send(member.directive(2, Verb.HOLD))
        os.kill(member.pid, signal.SIGCONT)
        (end,) = member.ended().ends
        assert (end.signal, end.stopped) == (signal.SIGSEGV, False)

    def test_exit_zero_after_sigterm_to_the_supervisor_is_no_success(self, member: Member) -> None:
        member.train(*shell("trap 'exit 0' TERM; while :; do sleep 0.01; done"))
        member.workers()
        os.kill(member.pid, signal.SIGTERM)
        assert member.sidecar.until(lambda report: report.terminating).ends == ()
        (end,) = member.hold(2, planned=True).ends
        assert (end.exit_code, end.stopped) == (0, True)
        assert member.wait() == 0

    def test_sigterm_without_a_controller_stops_the_worker_and_ends(self, member: Member) -> None:
        member.train(*shell("exec sleep 1000"))
        (worker,) = member.workers()
        member.sidecar.close()
        os.kill(member.pid, signal.SIGTERM)
        assert member.wait() == 0
        assert not is_alive(worker)

    def test_a_command_that_is_not_there_ends_with_127(self, member: Member) -> None:
        member.train("trainn.py")
        (end,) = member.ended().ends
        assert (end.exit_code, end.message) == (127, "trainn.py: No such file or directory")

    def test_a_file_that_can_not_be_executed_ends_with_126(self, member: Member) -> None:
        member.file("data").write_text("x")
        member.train(str(member.file("data")))
        (end,) = member.ended().ends
        assert end.exit_code == 126
        assert end.message.endswith("Permission denied")

    def test_an_environment_that_no_process_can_have_is_an_end_and_nothing_worse(self, member: Member) -> None:
        member.start(*SLEEP)
        member.run(member.hold(1), {"A": "\0"}, {"A": "\ud800"})
        assert [end.exit_code for end in member.ended().ends] == [126, 126]

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ({"message": {"message": "boom", "errorCode": -11, "extraInfo": {}}}, (None, 11, False, "boom")),
            ({"message": {"message": "boom", "errorCode": 42}}, (42, None, False, "boom")),
            ({"message": {"message": "ValueError: x", "extraInfo": {}}}, (1, None, True, "ValueError: x")),
            ({"message": "plain"}, (1, None, True, "plain")),
            ([], (1, None, True, "")),
            (None, (1, None, True, "")),
        ],
    )
    def test_torchruns_error_file_tells_how_its_child_ended(
        self, member: Member, said: object, expected: tuple[int | None, int | None, bool, str]
    ) -> None:
        error_file = member.file("error.json")
        error_file.write_text("left by an earlier attempt")
        write = (
            f'test ! -e "$TORCHELASTIC_ERROR_FILE" && echo \'{json.dumps(said)}\' > "$TORCHELASTIC_ERROR_FILE"; exit 1'
        )
        member.start("sh", "-c", write if said is not None else "exit 1")
        member.run(member.hold(1), {"TORCHELASTIC_ERROR_FILE": str(error_file)})
        (end,) = member.ended().ends
        assert (end.exit_code, end.signal, end.hidden, end.message) == expected


class TestTree:
    def test_daemons_in_sessions_of_their_own_are_gone_when_ready_is_said(self, member: Member) -> None:
        member.train(
            *python(
                "import os, signal, time\n"
                "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                "def note():\n"
                "    with open(os.environ['DIR'] + '/pids', 'a') as file: file.write(f'{os.getpid()} ')\n"
                "def daemon():\n"
                "    if os.fork(): return\n"
                "    os.setsid()\n"
                "    if os.fork(): os._exit(0)\n"
                "    note(); os.execve('/bin/sleep', ['sleep', '1000'], {})\n"
                "daemon(); daemon(); note(); time.sleep(1000)\n"
            )
        )
        workers = wait_for(lambda: len(pids(member.file())) == 3 and pids(member.file()))
        report = member.hold(2, grace_ms=200)
        assert not any(map(is_alive, workers))
        assert report.stop_ms is not None
        assert report.stop_ms >= 200

    def test_leftovers_of_a_worker_that_ended_by_itself_are_gone_when_ready_is_said(self, member: Member) -> None:
        member.train(*shell('setsid sh -c \'trap "" TERM; echo $$ >> "$DIR/pids"; sleep 1000\' & sleep 0.2; exit 3'))
        member.ended()
        workers = wait_for(lambda: len(pids(member.file())) == 2 and pids(member.file()))
        assert is_alive(workers[1])
        report = member.hold(2, grace_ms=60_000)
        assert not any(map(is_alive, workers))
        assert report.ends[0].exit_code == 3

    def test_who_ignores_sigterm_is_killed_after_the_grace(self, member: Member) -> None:
        member.train(*shell("trap '' TERM; echo ready > $DIR/ready; while :; do sleep 0.01; done"))
        wait_for(member.file("ready").exists)
        report = member.hold(2, grace_ms=300)
        (end,) = report.ends
        assert (end.signal, end.stopped) == (signal.SIGKILL, True)
        assert report.stop_ms is not None
        assert report.stop_ms >= 300

    def test_a_worker_that_forks_all_the_time_does_not_escape(self, member: Member) -> None:
        member.train(
            *python(
                "import os, signal\n"
                "signal.signal(15, signal.SIG_IGN)\n"
                "open(os.environ['DIR'] + '/ready', 'w').close()\n"
                "while True:\n"
                "    if os.fork(): os._exit(0)\n"
            )
        )
        wait_for(member.file("ready").exists)
        member.hold(2, grace_ms=50)
        assert processes.marked(member.pod) == []

    def test_a_stopped_worker_can_end_politely(self, member: Member) -> None:
        member.train(*python("import os, signal\nsignal.signal(15, lambda *_: os._exit(7))\nos.kill(os.getpid(), 19)"))
        worker = wait_for(lambda: processes.children(member.pid))[0]
        wait_for(lambda: Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        (end,) = member.hold(2).ends
        assert (end.exit_code, end.stopped) == (7, True)

    def test_signals_for_the_worker_are_forwarded(self, member: Member) -> None:
        member.train(*shell("trap 'exit 9' USR1; echo ready > $DIR/ready; while :; do sleep 0.01; done"))
        wait_for(member.file("ready").exists)
        os.kill(member.pid, signal.SIGUSR1)
        (end,) = member.ended().ends
        assert (end.exit_code, end.stopped) == (9, False)

    def test_a_successor_kills_what_a_killed_supervisor_left_before_it_speaks(self, member: Member) -> None:
        old = member.train(*shell("setsid sleep 1000 & exec sleep 1000"))
        left = wait_for(lambda: len(found := processes.marked(member.pod)) >= 2 and found)
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
        assert any(map(is_alive, left))
        new = member.start(*SLEEP)
        assert not any(map(is_alive, left))
        assert new.session != old.session
        assert new.attempt == 0

    @pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare starts a process as PID 1")
    def test_pid_1_reaps_and_kills_everything_in_its_namespace(self, member: Member, archive: Path) -> None:
        namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode != 0:
            pytest.skip("no right to make a PID namespace")
        flags = {
            "socket": member.folder / "socket",
            "state": member.state,
            "gang": "g1",
            "member": "w",
            "pod": member.pod,
        }
        command = shell("trap '' TERM; setsid -f sh -c 'trap \"\" TERM; sleep 999'; echo x > $DIR/ready; sleep 1000")
        given = [f"--{name}={value}" for name, value in flags.items()]
        member.process = subprocess.Popen(
            [*namespace, sys.executable, str(archive), "run", *given, "--address=1", "--", *command],
            env={**os.environ, "DIR": str(member.folder)},
            stderr=subprocess.DEVNULL,
        )
        member.sidecar.accept()
        member.run(member.hold(1))
        wait_for(member.file("ready").exists)
        before = wait_for(lambda: len(found := processes.marked(member.pod)) >= 3 and found)
        assert member.hold(2, grace_ms=100).ends[0].signal == signal.SIGKILL
        assert not any(map(is_alive, before))
        member.finish(2)


class TestSidecar:
    def test_workers_live_on_when_the_sidecar_dies_and_comes_back(self, member: Member) -> None:
        before = member.train(*shell("exec sleep 1000"))
        (worker,) = member.workers()
        member.sidecar.close()
        member.sidecar = Sidecar(member.folder / "socket")
        member.sidecar.accept()
        after = member.sidecar.until(lambda _: True)
        assert (after.session, after.phase, after.attempt) == (before.session, Phase.RUNNING, 1)
        assert after.seq > before.seq
        assert pids(member.file()) == [worker]
        assert is_alive(worker)

    def test_an_end_during_its_absence_is_told_when_it_is_back(self, member: Member) -> None:
        member.train(*shell("exec sleep 1000"))
        (worker,) = member.workers()
        member.sidecar.close()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{worker}").exists())
        member.sidecar = Sidecar(member.folder / "socket")
        member.sidecar.accept()
        (end,) = member.sidecar.until(lambda _: True).ends
        assert end.signal == signal.SIGKILL

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("hello", "not JSON"),
            ('{"v":7,"type":"Ping"}', "version 7"),
            (wire.encode(Scanned(1, "p")), "not for a supervisor"),
            ("x" * (wire.MAX_BYTES + 2), "over the limit"),
        ],
    )
    def test_a_malformed_line_costs_one_connection_and_says_why(self, member: Member, line: str, reason: str) -> None:
        before = member.train(*SLEEP)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            member.sidecar.send_line(line)
        member.sidecar.accept()
        after = member.sidecar.until(lambda _: True)
        assert (after.session, after.phase) == (before.session, Phase.RUNNING)
        assert reason in member.log

    def test_a_message_in_pieces_is_one_message(self, member: Member) -> None:
        member.start(*SLEEP)
        line = wire.encode(member.directive(1, Verb.HOLD)) + "\n"
        connection = member.sidecar._connection  # noqa: SLF001
        assert connection is not None
        for one in line.encode():
            connection.sendall(bytes([one]))
        member.sidecar.until(lambda report: report.phase is Phase.READY)

    def test_a_sidecar_that_does_not_read_blocks_nothing(self, member: Member) -> None:
        report = member.train(*shell("exec sleep 1000"))
        (worker,) = member.workers()
        for step in range(400):
            member.sidecar.send(Checkpoint("ram", step, 0, report.attempt, "p" * 2_000))
        member.sidecar.send(member.directive(2, Verb.HOLD))
        wait_for(lambda: not is_alive(worker))
        told = member.sidecar.until(lambda told: told.phase is Phase.READY)
        assert told.checkpoints[0].step == 399

    def test_a_silent_controller_isolates_the_worker(self, member: Member) -> None:
        member.start(*shell("trap 'exit 0' TERM; while :; do sleep 0.01; done"))
        ready = member.hold(1)
        member.sidecar.send(Ping())
        member.run(ready, isolation_ms=500)
        member.workers()
        report = member.ended()
        assert (report.phase, report.ends[0].stopped) == (Phase.RUNNING, True)

    def test_without_controller_and_worker_it_ends_with_zero(self, member: Member) -> None:
        member.launch(*SLEEP, orphan_seconds="1")
        assert member.wait() == 0

    def test_what_the_framework_says_comes_back_in_reports(self, member: Member) -> None:
        member.train(*SLEEP)
        member.sidecar.send(Progress(1, 41, 0), wire.Request(1, 0, "loss is nan", rank=0))
        report = member.sidecar.until(lambda told: told.request)
        assert report.progress is not None
        assert (report.progress.step, report.progress.first_step) == (41, 41)
        assert report.request is not None
        assert report.request.reason == "loss is nan"


class TestStart:
    def test_each_process_has_its_own_environment_and_arguments(self, member: Member) -> None:
        script = 'echo "$0 $1 $2 $3 $GANG_POD_UID" > "$DIR/out.$RANK"; sleep 1000'
        member.start("sh", "-c", script, "$(RANK)", "$$(RANK)", "$(NOPE)", "a$(DIR)$")
        member.run(member.hold(1), {"RANK": "0"}, {"RANK": "1"})
        for rank in "01":
            file = member.file(f"out.{rank}")
            said = wait_for(partial(text, file))
            assert said == f"{rank} $(RANK) $(NOPE) a{member.folder}$ {member.pod}\n"

    def test_the_host_file_is_there_before_the_worker_and_is_the_attempts(self, member: Member) -> None:
        member.start("sh", "-c", 'cat "$DIR/hostfile" > "$DIR/out.$GANG_ATTEMPT"; echo . >> "$DIR/out.$GANG_ATTEMPT"')
        lines = ("10.0.0.1 slots=8", "10.0.0.2 slots=8")
        for attempt, hosts, found in (
            (1, lines, "".join(f"{one}\n" for one in lines)),
            (2, lines[1:], lines[1] + "\n"),
        ):
            member.run(member.hold(attempt), {"GANG_ATTEMPT": str(attempt)}, hosts=hosts)
            assert wait_for(partial(text, member.file(f"out.{attempt}"))).startswith(found)
        member.run(member.hold(3), {"GANG_ATTEMPT": "3"})
        assert wait_for(partial(text, member.file("out.3"))) == ".\n"
        assert not member.file("hostfile").exists()

    def test_a_host_file_that_cant_be_written_stops_nobody(self, member: Member) -> None:
        member.file("hostfile").mkdir()
        member.start(*shell("exec sleep 1000"))
        member.run(member.hold(1), hosts=("10.0.0.1 slots=8",))
        assert is_alive(member.workers()[0])
        assert "the host file can't be written" in member.log

    def test_the_supervisors_own_settings_are_not_the_workers(
        self, member: Member, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("GANG_UID", "GANG_STATE", "GANG_POD_IP", "GANG_MEMBER", "GANG_INCARNATION", "GANG_CLIENT_DIR"):
            monkeypatch.setenv(name, "0")
        monkeypatch.setenv("GANG_SOCKET", "/run/gang/gang.sock")
        member.start("sh", "-c", 'env > "$DIR/out"; echo . >> "$DIR/out"')
        member.run(member.hold(1), {"GANG_MEMBER": "worker-0"})
        said = wait_for(lambda: (found := text(member.file("out"))).endswith("\n.\n") and found)
        found = {line.partition("=")[0] for line in said.splitlines() if line.startswith("GANG_")}
        assert found == {"GANG_SOCKET", "GANG_MEMBER", "GANG_POD_UID", processes.MARK}

    def test_the_client_is_last_in_pythonpath(self, member: Member) -> None:
        member.file("client").mkdir()
        member.start("sh", "-c", 'echo "$PYTHONPATH" > "$DIR/out"')
        member.run(member.hold(1), {"PYTHONPATH": "/mine"})
        said = wait_for(partial(text, member.file("out")))
        assert said == f"/mine:{member.file('client')}\n"

    def test_signals_are_as_a_fresh_process_expects_them(self, member: Member) -> None:
        code = (
            "import os; print(*[l for l in open('/proc/self/status') if l[:3] == 'Sig'], os.getsid(0) == os.getpid())"
        )
        member.start(*python(f"import sys; sys.stdout = open('{member.folder}/out', 'w')\n{code}"))
        member.run(member.hold(1))
        said = wait_for(partial(text, member.file("out")))
        pairs = (line.split(":") for line in said.splitlines() if ":" in line and "SigQ" not in line)
        sets = {name.strip(): int(mask, 16) & 0x7FFFFFFF for name, mask in pairs}
        # Python itself ignores SIGPIPE and SIGXFSZ and catches SIGINT: nothing more may be set.
        assert (sets["SigBlk"], sets["SigIgn"], sets["SigCgt"]) == (0, 0x1001000, 2)
        assert "True" in said

    def test_another_sessions_run_starts_nothing(self, member: Member) -> None:
        member.start(*shell("exec sleep 1000"))
        ready = member.hold(1)
        member.sidecar.send(member.order(replace(ready, session="another")))
        member.hold(2)
        assert not member.file().exists()

    def test_free_ports_are_offered_and_taken_ones_are_not(self, member: Member) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            member.start(*SLEEP)
            assert member.hold(1, base_port=port, port_count=1).ports == ()
        assert member.hold(2, base_port=port, port_count=1).ports == (port,)
        ports = member.hold(3).ports
        assert len(set(ports)) == 4
        assert all(29400 <= one < 29464 for one in ports)

    def test_a_restore_point_that_can_not_be_seen_starts_nothing(self, member: Member) -> None:
        member.start(*shell("exec sleep 1000"))
        ready = member.hold(1)
        member.sidecar.send(member.order(ready, restore=Restore(7, "shared", str(member.file("step-7")))))
        report = member.sidecar.until(lambda told: told.missing_step is not None)
        assert (report.phase, report.missing_step) == (Phase.READY, 7)
        assert not member.file().exists()

    def test_a_restore_point_that_is_seen_a_moment_later_is_waited_for(self, member: Member) -> None:
        member.start(*SLEEP)
        ready = member.hold(1)
        folder = member.file("step-7")
        member.sidecar.send(member.order(ready, restore=Restore(7, "shared", str(folder))))
        wait_for(lambda: processes.children(member.pid))  # it looks
        folder.mkdir()
        member.sidecar.until(lambda told: told.phase is Phase.RUNNING)


class TestScan:
    def tier(self, member: Member) -> Tier:
        return Tier("shared", str(member.file("ckpt")), "step-{step}", "DONE")

    def test_a_torn_newest_step_is_not_found(self, member: Member) -> None:
        for step, files in ((1, ["DONE"]), (2, ["DONE"]), (3, [])):
            folder = member.file("ckpt") / f"step-{step}"
            folder.mkdir(parents=True)
            for name in files:
                (folder / name).touch()
        member.start(*SLEEP)
        member.sidecar.send(Scan(4, (self.tier(member),)))
        answer = member.sidecar.scanned()
        assert (answer.attempt, answer.pod, answer.error) == (4, member.pod, "")
        assert [one.step for one in answer.found] == [2, 1]

    def test_a_file_system_that_does_not_answer_is_said_and_holds_nothing_up(self, member: Member) -> None:
        for step in range(100):
            (member.file("ckpt") / f"step-{step}").mkdir(parents=True)
        member.start(*SLEEP)
        slow = Scan(1, (self.tier(member),) * 4_000, timeout_ms=100)
        member.sidecar.send(slow, Scan(2, (self.tier(member),)), member.directive(1, Verb.HOLD))
        member.sidecar.until(lambda report: report.phase is Phase.READY)
        answer = member.sidecar.scanned()
        assert (answer.attempt, answer.found) == (1, ())
        assert "within 100 ms" in answer.error
        assert member.sidecar.scanned() == Scanned(2, member.pod)
        wait_for(lambda: not processes.children(member.pid))

    def test_a_scan_while_a_worker_stops_is_no_part_of_its_tree(self, member: Member) -> None:
        for step in range(100):
            (member.file("ckpt") / f"step-{step}").mkdir(parents=True)
        member.train(*SLEEP)
        member.sidecar.send(Scan(2, (self.tier(member),) * 2_000), member.directive(2, Verb.HOLD))
        member.sidecar.until(lambda report: report.phase is Phase.READY)
        assert member.sidecar.scanned().error == ""


class TestState:
    def test_ends_and_checkpoints_outlive_the_supervisor(self, member: Member) -> None:
        report = member.train("false")
        member.ended()
        kept = Checkpoint("ram", 5, 0, report.attempt, "/dev/shm/5")
        member.sidecar.send(kept)
        member.sidecar.until(lambda told: told.checkpoints)
        wait_for(lambda: '"ram"' in member.state.read_text())
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
        after = member.start(*SLEEP)
        assert after.checkpoints == (kept,)
        assert [end.exit_code for end in after.ends] == [1]
        assert after.ends[0].age_ms > 0

    @pytest.mark.parametrize("content", [b"", b"{", b"{}\n{}", b"\xff\xfe\n\n", b'{"boot":1,"now_ms":"x"}\n'])
    def test_a_state_that_can_not_be_read_is_an_empty_one(self, member: Member, content: bytes) -> None:
        member.state.write_bytes(content)
        assert member.start(*SLEEP).ends == ()
        assert "not usable" in member.log

    def test_the_state_of_another_pod_is_not_taken(self, member: Member) -> None:
        member.train("false")
        member.ended()
        wait_for(member.state.exists)
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
        member.pod = str(uuid.uuid4())
        assert member.start(*SLEEP).ends == ()

    def test_a_full_disk_is_said_once_and_the_last_good_state_survives(self, member: Member) -> None:
        member.start("false", fsize=16_000)
        member.run(member.hold(1))
        member.ended()
        wait_for(member.state.exists)
        good = member.state.read_text()
        for step in range(20):
            member.sidecar.send(Checkpoint("shm", step, 0, 1, "p" * 2_000))
        member.sidecar.until(lambda told: told.checkpoints and told.checkpoints[0].step == 19)
        member.finish(1)
        after = member.state.read_text()
        assert after.startswith('{"boot"')
        assert len(after) < 16_000
        assert len(after) >= len(good)
        assert member.log.count("can't be kept") == 1
        assert not member.file("state.tmp").exists()

    def test_a_folder_that_is_not_there_is_no_reason_to_stop(self, member: Member) -> None:
        member.state = member.file("nowhere") / "state"
        member.train("false")
        member.ended()
        member.finish(1)


class TestCommandLine:
    def call(self, archive: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(archive), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={"PATH": os.environ["PATH"], **env},
        )

    def test_help_names_every_flag_and_its_variable(self, archive: Path) -> None:
        said = self.call(archive, "--help")
        assert said.returncode == 0
        for word in ("--socket", "GANG_POD_UID", "--orphan-seconds", "Example", "Exit code"):
            assert word in said.stdout
        assert self.call(archive, "run", "--help").stdout == said.stdout

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ("", "expected run or copy"),
            ("walk", "'walk' is neither run nor copy"),
            ("run --sock x", "unknown flag '--sock'"),
            ("run -- true", "missing: --socket (or GANG_SUPERVISOR_SOCKET), --state"),
            ("copy", "copy takes one destination"),
            ("run --socket=s --state=s --gang=g --member=m --pod=p --address=a", "no command"),
            (
                "run --socket=s --state=s --gang=g --member=m --pod=p --address=a --incarnation=x -- true",
                "--incarnation: 'x' is not a whole number",
            ),
        ],
    )
    def test_bad_usage_is_said_in_a_sentence(self, archive: Path, arguments: str, reason: str) -> None:
        said = self.call(archive, *arguments.split())
        assert said.returncode == 2
        assert reason in said.stderr
        assert "Traceback" not in said.stderr

    def test_every_flag_can_come_from_the_environment(self, member: Member, archive: Path) -> None:
        env = {
            "GANG_SUPERVISOR_SOCKET": str(member.folder / "socket"),
            "GANG_STATE": str(member.state),
            "GANG_UID": "g9",
            "GANG_MEMBER": "worker-3",
            "GANG_INCARNATION": "2",
            "GANG_POD_UID": member.pod,
            "GANG_POD_IP": "10.1.2.3",
            "GANG_ORPHAN_SECONDS": "1",
        }
        said = self.call(archive, "run", "--", "true", **env)
        assert said.returncode == 0
        member.sidecar.accept()
        report = member.sidecar.until(lambda _: True)
        assert (report.gang, report.member, report.incarnation, report.address) == ("g9", "worker-3", 2, "10.1.2.3")

    def test_copy_makes_the_same_program(self, archive: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copied"
        assert self.call(archive, "copy", str(copy)).returncode == 0
        assert copy.read_bytes() == archive.read_bytes()
        assert os.access(copy, os.X_OK)
        assert self.call(archive, "copy", str(tmp_path / "no" / "where")).returncode == 1

    def test_the_same_sources_make_the_same_archive(self, archive: Path, tmp_path: Path) -> None:
        again = tmp_path / "again.pyz"
        bundle.build(again)
        assert again.read_bytes() == archive.read_bytes()
        assert list(tmp_path.iterdir()) == [again]

    def test_a_pythonpath_of_the_worker_does_not_reach_the_supervisor(self, archive: Path, tmp_path: Path) -> None:
        (tmp_path / "json.py").write_text("raise SystemExit(99)")
        assert self.call(archive, "--help", PYTHONPATH=str(tmp_path)).returncode == 0
