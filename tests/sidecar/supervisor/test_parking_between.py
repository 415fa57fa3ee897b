"""What happens to a process between two attempts: a stop that comes then, and what its globals hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pythons import every, oldest
from tests.sidecar.supervisor.parkable import Parkable
from tests.sidecar.supervisor.supervised import is_alive, wait_for

PYTHONS = sorted({oldest()[1], sys.executable, [*every().values()][-1]})

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
    ready = parkable.hold()
    assert ready.ends == ()
    assert parkable.begun(2) == {}
    assert parkable.noted("finalized") == ["1"]
    parkable.run(ready=ready)
    assert parkable.begun() == before


HOLDS = """\
import multiprocessing
from multiprocessing import resource_tracker, shared_memory
def take(lock):
    with lock:
        note("taken", os.getpid())
def train(gang):
    attached = shared_memory.SharedMemory(memory.name)
    attached.buf[0] += 1
    note("counted", attached.buf[0])
    attached.close()
    child = spawn.Process(target=take, args=(lock,))
    child.start()
    child.join()
    note("tracker", resource_tracker._resource_tracker._pid)
    note("begun", f"{gang.number} 0 {os.getpid()}")
    if gang.number < 3:
        steps(gang)
    memory.close()
    memory.unlink()
if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    memory = shared_memory.SharedMemory(create=True, size=16)
    gone = shared_memory.SharedMemory(create=True, size=16)
    gone.close()
    gone.unlink()
    lock, unnamed = spawn.Lock(), multiprocessing.get_context("fork").Lock()
    gangclient.run(train)
"""


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).name)
def test_shared_memory_and_semaphores_that_globals_hold_survive_and_are_known_to_the_next_tracker(
    parkable: Parkable, python: str
) -> None:
    """The tracker is a child: it must be gone when the process parks, and must take nothing with it."""
    parkable.start(HOLDS, python=python)
    for _ in range(3):
        ready = parkable.hold()
        assert not any(map(is_alive, map(int, parkable.noted("tracker"))))
        parkable.run(ready=ready)
    end = parkable.member.ended().ends[0]
    assert (end.exit_code, end.stopped) == (0, False)
    assert parkable.noted("counted") == ["1", "2", "3"]
    assert len(parkable.noted("taken")) == 3
    assert len(set(parkable.noted("tracker"))) == 3
    assert "resource_tracker" not in parkable.member.log
    assert "KeyError" not in parkable.member.log
