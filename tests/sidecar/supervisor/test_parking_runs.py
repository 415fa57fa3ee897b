"""Between two attempts: what a parked process must not get, must get in full, and where it does not go on."""

from __future__ import annotations

import os
import signal

from gangsidecar.supervisor.machine.stop import LOG_SEARCHED, SEARCHED
from gangsidecar.wire import Source, WarmStart
from tests.sidecar.supervisor.parkable import Parkable
from tests.sidecar.supervisor.supervised import is_alive, wait_for

PRINTS = (
    "def prints(gang):\n"
    "    note('begun', f'{gang.number} {os.environ[\"RANK\"]} {os.getpid()}')\n"
    "    print('step', 70 + gang.number, flush=True)\n"
    "    while True:\n        gang.progress(1)\n        time.sleep(0.005)\n"
    "gangclient.run(prints)\n"
)
PATTERN = Source(pattern="step (?P<step>[0-9]+)")
LONG = "x" * 8_000
"""The longest that a message may have."""


def test_none_goes_on_where_the_output_is_searched_from_now_on(parkable: Parkable) -> None:
    """What had parked writes to the output that it was started with: no step would be found there."""
    parkable.start(PRINTS)
    parkable.run({}, {})
    before = parkable.begun()
    ready = parkable.hold()
    assert not ready.ends
    report = parkable.run({}, {}, ready=ready, source=PATTERN)
    assert not any(map(is_alive, before.values()))
    assert not set(before.values()) & set(parkable.begun().values())
    assert report.warm_start == WarmStart(2, 0, 2, SEARCHED)
    assert not report.ends
    parkable.member.sidecar.until(lambda told: told.progress is not None and told.progress.step == 72)
    assert [end.signal for end in parkable.hold().ends] == [signal.SIGTERM] * 2
    assert parkable.run({}, {}).warm_start == WarmStart(4, 0, 2, SEARCHED)


def test_none_goes_on_where_the_policy_has_log_patterns(parkable: Parkable) -> None:
    parkable.start("gangclient.run(steps)\n")
    parkable.run()
    before = parkable.begun()
    report = parkable.run(log_patterns=("Xid",))
    assert not any(map(is_alive, before.values()))
    assert report.warm_start == WarmStart(2, 0, 1, LOG_SEARCHED)
    assert "podFailurePolicy has onLog" in LOG_SEARCHED


def test_signals_that_are_passed_on_pass_parked_processes_by(parkable: Parkable) -> None:
    parkable.start("gangclient.run(steps)\n")
    parkable.run()
    pid = parkable.begun()[0]
    parkable.hold()
    os.kill(parkable.member.pid, signal.SIGUSR1)
    parkable.hold()
    parkable.run(ready=parkable.hold())  # One turn of its loop may have begun before the signal, never the second.
    assert parkable.begun()[0] == pid


def test_a_long_environment_arrives_whole(parkable: Parkable) -> None:
    parkable.start(
        "def lengths(gang):\n"
        "    note('lengths', sum(len(value) for name, value in os.environ.items() if name.startswith('LONG')))\n"
        "    steps(gang)\n"
        "gangclient.run(lengths)\n"
    )
    parkable.run()
    pid = parkable.begun()[0]
    ready = parkable.hold()
    parkable.run({f"LONG_{at}": LONG for at in range(110)}, ready=ready)
    assert parkable.begun()[0] == pid
    assert parkable.noted("lengths") == ["0", str(110 * len(LONG))]
    assert parkable.hold().ends == ()
    wait_for(lambda: is_alive(pid))


def test_a_framework_that_connects_itself_is_interrupted_and_let_go(parkable: Parkable) -> None:
    """Its adapter's client is another one than that of train."""
    parkable.start(
        "from gangclient.pytorch import leave_at_once\n"
        "def fit(_gang):\n"
        "    mine = gangclient.connect()\n"
        "    mine.on_stop(leave_at_once)\n"
        "    mine.on_close.append(lambda: note('closed', mine.number))\n"
        "    steps(mine)\n"
        "gangclient.run(fit)\n"
    )
    parkable.run()
    pid = parkable.begun()[0]
    parkable.run(ready=parkable.hold())
    assert parkable.begun()[0] == pid
    assert parkable.noted("closed") == ["1"]
    assert parkable.hold().ends == ()
