"""Checks with real processes: whatever a check does, nothing of it is left, and the worker starts after it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from gangsidecar import wire
from gangsidecar.wire import Check, Checked, Phase
from tests.sidecar.supervisor.supervised import SLEEP, Member, is_alive, pids, python, shell, text, wait_for


def check(member: Member, *command: str, **more: Any) -> Checked:
    """Run a check; returns its result. 20 s are enough for what ends by itself."""
    member.sidecar.send(Check(1, **{"turn": 1, "name": "probe", "timeout_ms": 20_000, "command": command, **more}))
    turn = more.get("turn", 1)
    report = member.sidecar.until(lambda told: any(one.turn == turn for one in told.checks))
    assert report.phase is Phase.READY
    return report.checks[-1]


def test_a_check_gets_its_group_and_reports_its_last_line(member: Member) -> None:
    member.start(*SLEEP)
    member.hold(1)
    said = 'echo "$GANG_CHECK $GANG_CHECK_RANK/$GANG_CHECK_SIZE at $GANG_CHECK_HOST:$GANG_CHECK_PORT"; echo; echo " "'
    done = check(member, "sh", "-c", said, rank=1, size=2, host="10.0.0.7", port=29401)
    assert (done.exit_code, done.detail) == (0, "probe 1/2 at 10.0.0.7:29401")
    assert check(member, "sh", "-c", "read line; exit 7", turn=2).exit_code == 7, "there is no input"


def test_a_check_that_hangs_and_ignores_sigterm_is_killed_with_all_its_children(member: Member) -> None:
    member.start(*shell("sleep 1000"))
    member.hold(1)
    hang = shell("trap '' TERM; echo waits for rank 0; setsid sleep 1000 & echo $! >> $DIR/pids; sleep 1000 & wait")
    done = check(member, *hang, timeout_ms=500)
    assert (done.exit_code, done.signal, done.detail) == (None, None, "waits for rank 0")
    assert done.took_ms >= 500
    assert not any(map(is_alive, pids(member.file())))


def test_what_a_check_leaves_behind_is_killed_with_it(member: Member) -> None:
    member.start(*SLEEP)
    member.hold(1)
    fork = "import os, signal\nsignal.signal(15, signal.SIG_IGN)\n"
    fork += "for _ in range(5):\n    if not os.fork():\n        os.setsid()\n"
    fork += "        open(os.environ['DIR'] + '/pids', 'a').write(f'{os.getpid()} '); signal.pause()\n"
    fork += "while len(open(os.environ['DIR'] + '/pids').read().split()) < 5: pass\nprint('done')"
    member.file().touch()
    assert check(member, *python(fork)).detail == "done"
    assert len(pids(member.file())) == 5
    assert not any(map(is_alive, pids(member.file())))


def test_garbage_without_end_is_bounded_and_made_printable(member: Member) -> None:
    member.start(*SLEEP)
    member.hold(1)
    print_on = "import os\nfor _ in range(2000): os.write(1, os.urandom(8192))\n"
    print_on += "os.write(1, b'\\n\\xff\\x1b[31m' + b'x' * 9000)"
    done = check(member, *python(print_on))
    assert done.exit_code == 0
    assert len(done.detail) == wire.CHECK_DETAIL
    assert done.detail.isascii()
    assert done.detail.isprintable()


def test_a_check_that_can_not_be_executed_or_crashes_says_so(member: Member) -> None:
    member.start(*SLEEP)
    member.hold(1)
    done = check(member, "no-such-program")
    assert (done.exit_code, done.detail) == (127, "no-such-program: No such file or directory")
    assert check(member, "sh", "-c", "kill -SEGV $$$$", turn=2).signal == signal.SIGSEGV


def test_the_worker_starts_after_a_check_and_none_runs_beside_it(member: Member) -> None:
    member.start(*shell("sleep 1000"))
    ready = member.hold(1)
    member.sidecar.send(Check(1, 1, "probe", 20_000, command=("sh", "-c", 'echo $$$$ > "$DIR/check"; sleep 1000')))
    (pid,) = wait_for(lambda: pids(member.file("check")))
    running = member.run(ready)  # It doesn't wait for a result: the check is ended.
    assert not is_alive(pid)
    assert running.checks == ()
    assert is_alive(member.workers()[0])


def test_a_worker_trains_on_whatever_check_is_asked_for(member: Member) -> None:
    member.train(*shell("sleep 1000"))
    member.sidecar.send(Check(1, 1, "probe", 20_000, command=("touch", str(member.file("touched")))))
    report = member.hold(2)
    assert report.checks == ()
    assert not member.file("touched").exists()


def test_a_check_has_the_environment_of_a_worker_without_its_warm_starts(member: Member) -> None:
    member.start(*shell("env > $DIR/worker; sleep 1000"))
    ready = member.hold(1)
    assert check(member, "sh", "-c", 'env > "$DIR/check"').exit_code == 0
    member.run(ready)
    wait_for(lambda: "GANG_POD_UID" in text(member.file("worker")))
    worker, checked = (dict(_variables(member.file(name))) for name in ("worker", "check"))
    added = {name for name in checked if name not in worker}
    assert added == {f"GANG_CHECK{part}" for part in ("", "_RANK", "_SIZE", "_HOST", "_PORT")}
    same = {"PATH", "GANG_POD_UID", "DIR"}
    assert {name: checked[name] for name in same} == {name: worker[name] for name in same}


def _variables(file: Path) -> list[tuple[str, str]]:
    pairs = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
    return [(name, value) for name, _, value in pairs if name not in {"_", "SHLVL"}]
