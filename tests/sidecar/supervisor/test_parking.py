"""Workers that park: real processes, and the supervisor as it is shipped."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gangsidecar.supervisor.processes import is_stopped
from gangsidecar.supervisor.workers import GONE
from gangsidecar.wire import WarmStart
from tests.pythons import oldest
from tests.sidecar.supervisor.open_files import open_at_rest, open_in
from tests.sidecar.supervisor.parkable import Parkable
from tests.sidecar.supervisor.supervised import is_alive, wait_for

PLAIN = "gangclient.run(steps)\n"


@pytest.mark.parametrize("python", sorted({sys.executable, oldest()[1]}), ids=lambda path: Path(path).name)
def test_a_process_goes_on_with_each_attempt(parkable: Parkable, python: str) -> None:
    parkable.start(PLAIN, python=python)
    parkable.run({"ONLY": "first"})
    first = parkable.begun()
    pid = first[0]
    for number in range(2, 6):
        ready = parkable.hold()
        assert ready.ends == ()
        assert ready.killed_ms is None
        report = parkable.run(ready=ready)
        assert report.ends == ()
        assert report.warm_start == WarmStart(number, 0, 0, went_on=1)
        assert parkable.begun() == first
    before = open_at_rest(pid, parkable.member.pid)
    for _ in range(5):
        parkable.run()
    wait_for(lambda: (open_in(pid), open_in(parkable.member.pid)) == before)
    parkable.member.finish(parkable.attempt)
    assert not is_alive(pid)


def test_the_environment_is_that_of_the_attempt(parkable: Parkable) -> None:
    parkable.start(
        "def train(gang):\n"
        "    os.environ['MINE'] = os.environ.get('MINE', '') + 'x'\n"
        "    note('seen', ' '.join(os.environ.get(name, '-') for name in ('ONLY', 'BOTH', 'LATER', 'MINE')))\n"
        "    note('seen', f'{gang.restart_reason}|{gang.restore}|{gang.number}')\n"
        "    note('variables', sorted(name for name in os.environ if 'PARKING' in name))\n"
        "    steps(gang)\n"
        "gangclient.run(train)\n"
    )
    parkable.run({"ONLY": "first", "BOTH": "1"})
    ready = parkable.hold(reason="worker-3 was killed by SIGKILL")
    parkable.run(
        {"BOTH": "2", "LATER": "now", "GANG_RESTORE_STEP": "7", "GANG_RESTORE_PATH": "/x", "GANG_RESTORE_TIER": "ram"},
        ready=ready,
    )
    assert parkable.noted("seen") == [
        "first 1 - x",
        "|None|1",
        "- 2 now xx",
        "worker-3 was killed by SIGKILL|Restore(step=7, path='/x', tier='ram')|2",
    ]
    assert set(parkable.noted("variables")) == {"[]"}


def test_callbacks_run_first_and_hooks_before_it_parks(parkable: Parkable) -> None:
    parkable.start(
        "def aborted(stop):\n    note('order', f'abort {stop.reason} {stop.planned} {stop.seconds_left > 5}')\n"
        "    note('order', threading.current_thread() is threading.main_thread())\n"
        "def failing(stop):\n    raise ValueError('aborting failed')\n"
        "def train(gang):\n"
        "    try:\n        steps(gang)\n"
        "    except gangclient.Restart as restart:\n"
        "        note('order', f'left {restart.stop.planned}')\n        raise\n"
        "gangclient.run(train, abort=(failing, aborted), finalize=lambda: note('order', 'finalize'))\n"
    )
    parkable.run()
    ready = parkable.hold(reason="R", planned=True)
    assert parkable.noted("order") == ["abort R True True", "False", "left True", "finalize"]
    parkable.run(ready=ready)
    assert parkable.told == WarmStart(2, 0, 0, went_on=1)
    assert "aborting failed" in parkable.member.log


def test_cycles_of_train_are_collected_without_a_search_of_what_was_there_before(parkable: Parkable) -> None:
    parkable.start(
        "import gc\n"
        "class Model: pass\n"
        "def train(gang):\n"
        "    note('models', sum(type(one) is Model for one in gc.get_objects()))\n"
        "    note('frozen', gc.get_freeze_count() > len(gc.get_objects()))\n"
        "    model = Model()\n    model.itself = model\n"
        "    steps(gang)\n"
        "gangclient.run(train)\n"
    )
    for _ in range(3):
        parkable.run()
    assert parkable.noted("models") == ["0", "0", "0"]
    assert set(parkable.noted("frozen")) == {"True"}


def test_the_failed_rank_is_started_anew_and_the_others_go_on(parkable: Parkable) -> None:
    parkable.start(PLAIN)
    parkable.run({}, {}, {})
    before = parkable.begun()
    os.kill(before[1], signal.SIGKILL)
    parkable.member.ended()
    ready = parkable.hold()
    assert [(end.rank, end.signal, end.stopped) for end in ready.ends] == [(1, 9, False)]
    parkable.run({}, {}, {}, ready=ready)
    after = parkable.begun()
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]
    assert parkable.told == WarmStart(2, 0, 1, GONE, went_on=2)


def test_a_process_that_was_stopped_runs_again_so_that_it_can_park(parkable: Parkable) -> None:
    parkable.start(PLAIN)
    parkable.run()
    before = parkable.begun()
    os.kill(before[0], signal.SIGSTOP)
    wait_for(lambda: is_stopped(before[0]))
    ready = parkable.hold()
    assert ready.killed_ms is None
    parkable.run(ready=ready)
    assert parkable.begun() == before


@pytest.mark.parametrize("preload", ["Auto", "decimal"])
def test_a_forked_process_parks_too(parkable: Parkable, preload: str) -> None:
    parkable.start(PLAIN, preload=preload)
    wait_for(lambda: preload == "Auto" or "the template is ready" in parkable.member.log)
    parkable.run({}, {})
    before = parkable.begun()
    assert parkable.told == WarmStart(
        1,
        0 if preload == "Auto" else 2,
        2 if preload == "Auto" else 0,
        parkable.told.obstacle if parkable.told else "",
        parkable.told.template_bytes if parkable.told else 0,
    )
    os.kill(before[0], signal.SIGKILL)
    parkable.member.ended()
    parkable.run({}, {})
    assert parkable.begun()[1] == before[1]
    assert parkable.told is not None
    assert parkable.told.went_on == 1


def test_an_echo_of_a_peers_fault_parks_and_another_exception_leaves(parkable: Parkable) -> None:
    parkable.start(
        "def train(gang):\n"
        "    note('begun', f\"{gang.number} {os.environ['RANK']} {os.getpid()}\")\n"
        "    while not os.path.exists(os.environ['DIR'] + '/raise'):\n        time.sleep(0.005)\n"
        "    os.unlink(os.environ['DIR'] + '/raise')\n"
        "    note('raised', gang.number)\n"
        "    raise RuntimeError('the peer is gone')\n"
        "gangclient.run(train, echo_seconds=float(os.environ['ECHO']))\n"
    )
    parkable.run({"ECHO": "20"})
    (parkable.member.folder / "raise").touch()
    wait_for(lambda: parkable.noted("raised") == ["1"])
    assert parkable.hold().ends == ()
    assert "the peer is gone" in parkable.member.log


def test_an_exception_without_a_stop_leaves_the_process(parkable: Parkable) -> None:
    parkable.start("def train(gang):\n    raise ValueError('its own fault')\ngangclient.run(train, echo_seconds=0.1)\n")
    told = parkable.member.run(parkable.hold(), {"GANG_SOCKET": "/nowhere", "GANG_ATTEMPT": "1"})
    assert [(end.exit_code, end.stopped) for end in (told if told.ends else parkable.member.ended()).ends] == [
        (1, False)
    ]
    assert "ValueError: its own fault" in parkable.member.log


@pytest.mark.parametrize(("code", "expected"), [("pass", 0), ("sys.exit(7)", 7)])
def test_what_train_returns_and_how_it_exits_is_as_ever(parkable: Parkable, code: str, expected: int) -> None:
    parkable.start(
        f"def train(gang):\n    {code}\n    return 'result'\n"
        "atexit.register(note, 'atexit', 'once')\n"
        "note('result', gangclient.run(train))\n"
    )
    told = parkable.member.run(parkable.hold(), {"GANG_SOCKET": "/nowhere", "GANG_ATTEMPT": "1"})
    end = (told if told.ends else parkable.member.ended()).ends[0]
    assert (end.exit_code, end.stopped) == (expected, False)
    assert parkable.noted("atexit") == ["once"]
    assert parkable.noted("result") == ([] if expected else ["result"])


def test_atexit_runs_once_when_the_process_ends(parkable: Parkable) -> None:
    parkable.start(
        "atexit.register(note, 'atexit', 'once')\n"
        "def train(gang):\n    if gang.number < 3:\n        steps(gang)\n    note('begun', f'3 0 {os.getpid()}')\n"
        "gangclient.run(train)\n"
    )
    parkable.run()
    parkable.run()
    parkable.run()
    parkable.member.ended()
    assert parkable.noted("atexit") == ["once"]
    assert len(set(parkable.begun(1).values()) | set(parkable.begun(3).values())) == 1


def test_a_stop_after_run_has_returned_is_a_signal(parkable: Parkable) -> None:
    parkable.start("gangclient.run(lambda gang: None)\nnote('begun', f'1 0 {os.getpid()}')\ntime.sleep(1000)\n")
    parkable.run()
    ready = parkable.hold()
    assert [(end.signal, end.stopped) for end in ready.ends] == [(15, True)]


def test_at_once_interrupts_what_waits(parkable: Parkable) -> None:
    parkable.start(
        "def train(gang):\n    note('begun', f'{gang.number} 0 {os.getpid()}')\n    time.sleep(1000)\n"
        "gangclient.run(train, interrupt='at_once')\n"
    )
    parkable.run()
    pid = parkable.begun()
    for _ in range(3):
        parkable.run()
        assert parkable.begun() == pid


def test_at_once_interrupts_what_waits_where_a_signal_comes_too_early(parkable: Parkable) -> None:
    """Python lets a call wait if the signal came after the last instruction before it."""
    parkable.start(
        "def train(gang):\n"
        "    run, came = signal.getsignal(signal.SIGURG), []\n"
        "    def handler(signum, frame):\n"
        "        came.append(signum)\n"
        "        if len(came) > 1:\n            run(signum, frame)\n"
        "    signal.signal(signal.SIGURG, handler)\n"
        "    note('begun', f'{gang.number} 0 {os.getpid()}')\n"
        "    try:\n        time.sleep(1000)\n"
        "    finally:\n        signal.signal(signal.SIGURG, run)\n        note('came', len(came) > 1)\n"
        "gangclient.run(train, interrupt='at_once')\n"
    )
    for _ in range(3):
        parkable.run()
    assert parkable.noted("came") == ["True", "True"]


def test_at_once_interrupts_once_and_not_the_way_out(parkable: Parkable) -> None:
    parkable.start(
        "def aborted(stop):\n    time.sleep(0.05)\n"
        "def train(gang):\n"
        "    try:\n        steps(gang)\n"
        "    finally:\n        time.sleep(0.2)\n        note('left', gang.number)\n"
        "gangclient.run(train, interrupt='at_once', abort=aborted)\n"
    )
    parkable.run()
    for number in range(1, 4):
        parkable.run()
        assert parkable.noted("left") == [str(one) for one in range(1, number + 1)]


SWALLOWS = """\
while True:
            try:
                gang.progress(1)
            except BaseException:
                time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("code", "place"),
    [
        (
            SWALLOWS,
            "something has caught it",
        ),
        ("time.sleep(1000)", "train.py:16 in train"),
    ],
)
def test_what_does_not_park_in_time_is_killed_and_the_log_has_the_place(
    parkable: Parkable, code: str, place: str
) -> None:
    parkable.start(
        f"def train(gang):\n    note('begun', f'{{gang.number}} 0 {{os.getpid()}}')\n    if True:\n        {code}\n"
        "gangclient.run(train)\n"
    )
    parkable.run()
    ready = parkable.hold(grace_ms=1_000)
    assert [(end.signal, end.stopped) for end in ready.ends] == [(9, True)]
    assert ready.killed_ms is not None
    assert "has not parked in time" in parkable.member.log

    assert place in parkable.member.log


def test_what_train_has_left_behind_is_ended_before_ready(parkable: Parkable) -> None:
    """A child that its parent keeps is killed, and the parent spared. One that has ended, unreaped, doesn't count."""
    parkable.start(
        "children = []\n"
        "def train(gang):\n"
        "    children.append(subprocess.Popen(['sleep', '1000']))\n"
        "    children.append(subprocess.Popen(['true']))\n"
        "    note('children', children[-2].pid)\n"
        "    steps(gang)\n"
        "gangclient.run(train)\n"
    )
    parkable.run()
    pid = parkable.begun()
    ready = parkable.hold()
    assert ready.killed_ms is None
    assert not is_alive(int(parkable.noted("children")[0]))
    parkable.run(ready=ready)
    assert parkable.begun() == pid


def test_children_of_a_process_that_parks_get_no_signal(parkable: Parkable) -> None:
    parkable.start(
        "def train(gang):\n"
        "    trap = 'trap \"echo signalled >> $DIR/signals\" TERM; sleep 1000 & wait'\n"
        "    child = subprocess.Popen(['sh', '-c', trap], start_new_session=True)\n"
        "    try:\n        steps(gang)\n"
        "    finally:\n        time.sleep(0.3)\n        os.killpg(child.pid, 9)\n        child.wait()\n"
        "gangclient.run(train)\n"
    )
    parkable.run()
    parkable.hold()
    assert parkable.noted("signals") == []


def test_a_thread_of_train_holds_up_ready_until_it_ends(parkable: Parkable) -> None:
    parkable.start(
        "def write():\n"
        "    while 'parking: writer' not in open(os.environ['DIR'] + '/log').read():\n        time.sleep(0.005)\n"
        "    note('written', 'all')\n"
        "def train(gang):\n    threading.Thread(target=write, name='writer').start()\n"
        "    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n    steps(gang)\n"
        "gangclient.run(train)\n"
    )
    parkable.run()
    pid = parkable.begun()
    ready = parkable.hold()
    assert parkable.noted("written") == ["all"]
    assert "keep this process from parking: writer" in parkable.member.log
    parkable.run(ready=ready)
    assert parkable.begun() == pid
