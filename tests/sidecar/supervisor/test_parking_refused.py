"""Processes that can't park, lie, or speak nonsense: none goes on that should not, and none holds up a stop."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gangsidecar.supervisor.workers import GONE, REFUSAL
from gangsidecar.wire import Verb, WarmStart
from tests.sidecar.supervisor.parkable import Parkable
from tests.sidecar.supervisor.supervised import is_alive, wait_for

CHANNEL = """\
import json, socket
channel = socket.socket(fileno=int(os.environ["GANG_PARKING"].partition(":")[0]))
def say(**message):
    channel.sendall(json.dumps(message).encode() + b"\\n")
def begin():
    note("begun", f"{os.environ['GANG_ATTEMPT']} {os.environ['RANK']} {os.getpid()}")
lines = channel.makefile("r")
def hear():
    line = lines.readline()
    note("heard", line.strip())
    return json.loads(line) if line else sys.exit(9)
"""
SAYS = CHANNEL + "say(parkable=True)\nbegin()\nattempt = hear()['stop']['attempt']\n"
GRACE = 500
KILLED = [(9, True)]


def ends(parkable: Parkable) -> list[tuple[int | None, bool]]:
    """How the worker's processes ended in a stop."""
    return [(end.signal, end.stopped) for end in parkable.hold(grace_ms=GRACE).ends]


@pytest.mark.parametrize(
    "says",
    [
        "say(parked=attempt - 1)",
        "say(parked=attempt + 1)",
        "say(parked=True)",
        "say(parked=str(attempt))",
        "say(run={})",
        "channel.sendall(b'nonsense\\n[]\\n1\\n\\xff\\n' + b'[' * 900 + b'\\n')",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "os.fork() or (say(parked=attempt), time.sleep(1000))",
    ],
)
def test_what_makes_no_sense_or_is_no_word_of_its_own_is_not_believed(parkable: Parkable, says: str) -> None:
    parkable.start(SAYS + says + "\ntime.sleep(1000)\n")
    parkable.run()
    assert ends(parkable) == KILLED


@pytest.mark.parametrize(
    "says", ["channel.sendall(b'x' * 100_000 if attempt else b'')", "channel.close(); lines.close()"]
)
def test_a_process_that_can_park_no_more_gets_the_signal(parkable: Parkable, says: str) -> None:
    parkable.start(SAYS + says + "\ntime.sleep(1000)\n")
    parkable.run()
    ready = parkable.hold(grace_ms=60_000)
    assert [(end.signal, end.stopped) for end in ready.ends] == [(signal.SIGTERM, True)]
    assert ready.killed_ms is None


def test_a_process_that_can_park_no_more_gets_the_signal_once(parkable: Parkable) -> None:
    """What it has started gets it as well; another that parks does not."""
    parkable.start(
        "def noted(signum, frame):\n    note('signalled', os.getpid())\n"
        "    try:\n        os.wait()\n"  # What is left of a worker that has ended is killed.
        "    except ChildProcessError:\n        pass\n"
        "    os._exit(0)\n"
        "def left(gang):\n"
        "    signal.signal(signal.SIGTERM, noted)\n"
        "    child = os.fork()\n"
        "    if os.environ['RANK'] == '1' and child:\n        os.kill(child, 9); os.wait(); steps(gang)\n"
        "    if not child:\n        note('child', os.environ['RANK'])\n"
        "    note('begun', f'{gang.number} {os.environ[\"RANK\"]} {os.getpid()}') if child else None\n"
        "    try:\n        gangclient_waits(gang) if child else naps()\n"
        "    except gangclient.Restart:\n        pass\n"
        "def gangclient_waits(gang):\n"
        "    while not os.path.exists(os.environ['DIR'] + '/return'):\n        time.sleep(0.005)\n"
        "def naps():\n"  # A signal between the last instruction and a sleep is handled when the sleep ends.
        "    while True:\n        time.sleep(0.005)\n"
        "gangclient.run(left)\n"
        "naps()\n"
    )
    parkable.run({}, {})
    pids = parkable.begun()
    wait_for(lambda: "0" in parkable.noted("child"))  # Python forgets a signal that comes in the middle of a fork.
    parkable.attempt += 1
    parkable.member.sidecar.send(parkable.member.directive(parkable.attempt, Verb.HOLD, grace_ms=60_000))
    parkable.member.sidecar.until(lambda report: report.attempt == parkable.attempt)
    (parkable.member.folder / "return").touch()
    ready = parkable.hold(grace_ms=60_000)
    assert [(end.local_rank, end.stopped) for end in ready.ends] == [(0, True)]
    signalled = parkable.noted("signalled")
    assert len(signalled) == len(set(signalled)) == 2
    assert str(pids[0]) in signalled
    assert is_alive(pids[1])


def test_a_process_that_says_it_has_parked_before_it_is_told_to_is_not_believed(parkable: Parkable) -> None:
    parkable.start(CHANNEL + "say(parkable=True)\nsay(parked=1)\nbegin()\ntime.sleep(1000)\n")
    parkable.run()
    assert ends(parkable) == KILLED


def test_a_process_that_has_parked_for_one_stop_must_say_so_again_for_the_next(parkable: Parkable) -> None:
    parkable.start(
        SAYS + "say(parked=1)\nos.environ.update(hear()['run']['set'])\nbegin()\nsay(parked=1)\ntime.sleep(99)\n"
    )
    parkable.run()
    pid = parkable.begun()
    parkable.run()
    assert parkable.begun() == pid
    assert ends(parkable) == KILLED


def test_a_process_that_says_so_twice_has_parked_once(parkable: Parkable) -> None:
    parkable.start(SAYS + "say(parked=1)\nsay(parked=1)\nos.environ.update(hear()['run']['set'])\nbegin()\nhear()\n")
    parkable.run()
    pid = parkable.begun()
    parkable.run()
    assert parkable.begun() == pid


def test_a_process_that_dies_parked_is_started_anew_without_a_fault(parkable: Parkable) -> None:
    parkable.start("gangclient.run(steps)\n")
    parkable.run({}, {})
    before = parkable.begun()
    ready = parkable.hold()
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{before[0]}").exists())  # Reaped: its threads end after its first one.
    report = parkable.run({}, {}, ready=ready)
    assert report.ends == ()
    assert report.warm_start == WarmStart(2, 0, 1, GONE, went_on=1)
    after = parkable.begun()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_parked_process_that_closes_its_channel_is_ended_and_started_anew(parkable: Parkable) -> None:
    parkable.start(
        CHANNEL
        + "say(parkable=True)\nbegin()\nsay(parked=hear()['stop']['attempt'])\n"
        + "while not os.path.exists(os.environ['DIR'] + '/close'):\n    time.sleep(0.005)\n"
        + "lines.close()\nchannel.close()\ntime.sleep(1000)\n"
    )
    parkable.run()
    before = parkable.begun()
    ready = parkable.hold()
    (parkable.member.folder / "close").touch()
    wait_for(lambda: not is_alive(before[0]))
    assert parkable.run(ready=ready).ends == ()
    assert parkable.begun() != before


def test_a_process_that_starts_another_while_it_is_parked_ends_the_next_attempt_only(parkable: Parkable) -> None:
    parkable.start(
        SAYS + "say(parked=attempt)\n"
        "while not os.path.exists(os.environ['DIR'] + '/start'):\n    time.sleep(0.005)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "note('child', child.pid)\nhear()\nbegin()\ntime.sleep(1000)\n"
    )
    parkable.run()
    ready = parkable.hold()
    (parkable.member.folder / "start").touch()
    wait_for(lambda: parkable.noted("child"))
    told = parkable.member.run(ready, {"GANG_ATTEMPT": "2", "RANK": "0"})
    ended = told if told.ends else parkable.member.ended()
    assert [(end.attempt, end.signal, end.stopped) for end in ended.ends] == [(2, 9, False)]
    parkable.hold()
    assert not is_alive(int(parkable.noted("child")[0]))
    assert not any("run" in line for line in parkable.noted("heard"))


def test_a_parked_process_ends_with_its_supervisor(parkable: Parkable) -> None:
    parkable.start("gangclient.run(steps)\n")
    parkable.run()
    pid = parkable.begun()[0]
    parkable.hold()
    os.kill(parkable.member.pid, signal.SIGKILL)
    parkable.member.wait()
    wait_for(lambda: not is_alive(pid))


def test_a_new_session_kills_what_has_parked(parkable: Parkable) -> None:
    parkable.start(SAYS + "say(parked=attempt)\ntime.sleep(1000)\n")
    parkable.run()
    pid = parkable.begun()[0]
    parkable.hold()
    os.kill(parkable.member.pid, signal.SIGKILL)
    parkable.member.wait()
    assert is_alive(pid)
    parkable.member.start("true")
    assert not is_alive(pid)


@pytest.mark.parametrize("how", [signal.SIGTERM, None])
def test_a_parked_process_is_ended_with_its_pod(parkable: Parkable, how: signal.Signals | None) -> None:
    parkable.start(SAYS + "say(parked=attempt)\ntime.sleep(1000)\n")
    parkable.run()
    pid = parkable.begun()[0]
    parkable.hold()
    if how is None:
        parkable.member.sidecar.send(parkable.member.directive(2, Verb.FINISH))
    else:
        parkable.member.process.send_signal(how)  # type: ignore[union-attr]
    assert parkable.member.wait() == 0
    assert not is_alive(pid)


def test_a_parked_process_is_ended_with_its_lease(parkable: Parkable) -> None:
    parkable.start(SAYS + "say(parked=attempt)\ntime.sleep(1000)\n")
    parkable.run()
    pid = parkable.begun()[0]
    parkable.hold(isolation_ms=60_000)
    assert is_alive(pid)
    parkable.member.sidecar.send(parkable.member.directive(2, Verb.HOLD, isolation_ms=1))
    wait_for(lambda: not is_alive(pid))


def test_a_command_with_a_variable_of_the_attempt_is_started_anew(parkable: Parkable) -> None:
    parkable.start(
        "gangclient.run(steps)\n", sys.executable, "-u", str(parkable.script), "--rank", "$(RANK)", "$(HOME)"
    )
    parkable.run()
    wait_for(lambda: "its command has a variable of the attempt" in parkable.member.log)  # the process tells it
    assert [(end.signal, end.stopped) for end in parkable.hold().ends] == [(15, True)]
    assert parkable.member.sidecar.last is not None
    report = parkable.run(ready=parkable.member.sidecar.last)
    assert report.warm_start == WarmStart(2, 0, 1, REFUSAL)


@pytest.mark.parametrize(("wrapper", "goes_on"), [('exec "$@"', True), ('"$@"; exit', False)])
def test_a_shell_that_execs_takes_part_and_one_that_waits_does_not(
    parkable: Parkable, wrapper: str, *, goes_on: bool
) -> None:
    parkable.start("gangclient.run(steps)\n", "sh", "-c", wrapper, "-", sys.executable, "-u", str(parkable.script))
    parkable.run()
    before = parkable.begun()
    ready = parkable.hold()
    assert bool(ready.ends) is not goes_on
    parkable.run(ready=ready)
    assert (parkable.begun() == before) is goes_on


def test_a_launchers_children_are_started_anew(parkable: Parkable) -> None:
    parkable.start(
        "gangclient.run(steps)\n",
        sys.executable,
        "-c",
        ("import subprocess, sys; subprocess.run([sys.executable, '-u', sys.argv[1]], close_fds=False)"),
        str(parkable.script),
    )
    parkable.run()
    assert [(end.signal, end.stopped) for end in parkable.hold().ends] == [(15, True)]


def test_a_forked_child_of_a_process_that_can_park_does_not_speak_for_it(parkable: Parkable) -> None:
    parkable.start(
        "def train(gang):\n"
        "    child = os.fork()\n"
        "    if not child:\n        gangclient.run(steps)\n"
        "    try:\n        while True:\n            gang.progress(1)\n            time.sleep(0.01)\n"
        "    finally:\n        os.kill(child, 9)\n"
        "gangclient.run(train)\n"
    )
    parkable.run()
    assert parkable.hold().ends == ()


def test_wrong_calls_are_refused(parkable: Parkable) -> None:
    parkable.start(
        "def tried(call):\n    try:\n        call()\n    except Exception as error:\n"
        "        note('refused', f'{type(error).__name__}: {error}')\n"
        "def train(gang):\n"
        "    tried(lambda: gangclient.run(train))\n    tried(lambda: gangclient.run(train, interrupt='now'))\n"
        "    thread = threading.Thread(target=tried, args=(lambda: gangclient.run(train),))\n"
        "    thread.start()\n    thread.join()\n    return 1\n"
        "tried(lambda: gangclient.run(train, interrupt='now'))\n"
        "note('begun', f'1 0 {os.getpid()} ')\n"
        "gangclient.run(train)\n"
        "gangclient.run(train)\n"
        "time.sleep(1000)\n"
    )
    parkable.run()
    found = wait_for(lambda: len(lines := parkable.noted("refused")) >= 7 and lines)
    assert found[0] == "ValueError: interrupt='now': it is 'at_progress' or 'at_once'"
    assert found[1].startswith("RuntimeError: gangclient.run is called inside of gangclient.run")
    assert found[3].startswith("RuntimeError: gangclient.run must be called in the main thread")
    assert found[1:4] == found[4:]
