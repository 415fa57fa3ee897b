"""What happens to a process between two attempts: a stop that comes then, and what its globals hold."""

from __future__ import annotations

import pytest

from tests.sidecar.supervisor.parkable import Parkable
from tests.sidecar.supervisor.supervised import wait_for

BETWEEN = """\
import gangclient._session as session
def waits(environment):
    if environment["GANG_ATTEMPT"] == "2":
        told.clear()
        note("between", 2)
        while not told.is_set() or any(one.name == "gangclient-abort" for one in threading.enumerate()):
            time.sleep(0.005)
session.wait_for_first_rank = waits
told = threading.Event()
def train(gang):
    note("begun", f"{gang.number} 0 {os.getpid()}")
    while gang.number == 2 or HANGS:
        time.sleep(1000)
    steps(gang)
"""


@pytest.mark.parametrize("interrupt", ["at_once", "at_progress"])
def test_a_stop_between_two_attempts_keeps_train_from_beginning(parkable: Parkable, interrupt: str) -> None:
    hangs = "HANGS = " + str(interrupt == "at_once") + "\n"
    parkable.start(
        hangs + BETWEEN + "finalize = lambda: note('finalized', os.environ['GANG_ATTEMPT'])\n"
        f"gangclient.run(train, interrupt={interrupt!r}, abort=lambda stop: told.set(), finalize=finalize)\n"
    )
    parkable.run()
    before = parkable.begun()
    parkable.member.run(parkable.hold(), {"GANG_ATTEMPT": "2", "GANG_SOCKET": "/nowhere", "RANK": "0"})
    wait_for(lambda: parkable.noted("between"))
    ready = parkable.hold(grace_ms=3_000)
    assert ready.ends == ()
    assert parkable.begun(2) == {}
    assert parkable.noted("finalized") == ["1"]
    parkable.run(ready=ready)
    assert parkable.begun() == before
