"""gangclient as a training script uses it: in processes of its own, with a real sidecar."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from aiohttp import web

import gangclient
from gangsidecar import wire
from tests.client.scripts import RESTORE, environment, frozen, script
from tests.pythons import oldest
from tests.sidecar.agent.sidecars import training, until


@pytest.fixture
def module(directory: Path) -> Path:
    """A folder for PYTHONPATH, with the module under its published name."""
    shutil.copytree(Path(gangclient.__file__).parent, directory / "gangclient")
    return directory


TRAIN = """
import gangclient
gang = gangclient.connect()
assert gang.restore == (1200, "/checkpoints/1200", "shared"), gang.restore
assert gang.attempt()["worldSize"] == 8
with gang.joining():
    pass
with gang.loading():
    pass
gang.checkpoint_begun(1300, "ram", "/dev/shm/1300")
gang.checkpoint_completed(1300, "ram", "/dev/shm/1300")
gang.checkpoint_dropped(1100, "ram")
gang.progress(1201, seconds=0.1)
gang.request_restart("the loss is NaN", level="Pod", exclude_this_node=True)
gang.checkpoint_verified(1200)
gang.corrupt(since_step=1250, why="the sum differs", rank=6)
print(next(gang.events()).kind)
"""


RESTORED = {
    "GANG_RESTORE_STEP": "1200",
    "GANG_RESTORE_PATH": "/checkpoints/1200",
    "GANG_RESTORE_TIER": "shared",
}


@pytest.mark.parametrize("python", sorted({sys.executable, oldest()[1]}), ids=lambda path: Path(path).name)
async def test_a_script_makes_every_call_on_every_python(module: Path, python: str) -> None:
    async with training(module, RESTORE) as here:
        printed = await script(TRAIN, environment(module, here.sidecar.socket, **RESTORED), python)
        assert printed.strip() == "run"
        progress = await here.supervisor.wait_for(wire.Progress)
        assert (progress.step, progress.phase) == (1201, "Step")
        await here.supervisor.wait_for(wire.Reached, 2)
        reached = here.supervisor.all(wire.Reached)
        assert [one.milestone for one in reached] == [wire.Milestone.RENDEZVOUS, wire.Milestone.CHECKPOINT_LOAD]
        assert {(one.attempt, one.rank) for one in reached} == {(3, 4)}
        assert all(one.milliseconds in range(1000) for one in reached)
        of_its_own_thread = (wire.Directive, wire.Progress, wire.Reached)
        said = [one for one in here.supervisor.received if not isinstance(one, of_its_own_thread)]
        assert said == [
            wire.Dropped("ram", 1300, 4, 3),
            wire.Checkpoint("ram", 1300, 4, 3, "/dev/shm/1300"),
            wire.Dropped("ram", 1100, 4, 3),
            wire.Request(3, 0, "the loss is NaN", 4, wire.Level.POD, exclude_node=True),
            wire.Verified(3, 1200),
            wire.Corruption(3, 0, 1250, "the sum differs", 6),
        ]


NOWHERE = """
import gangclient
gang = gangclient.connect()
assert gang.restore is None and gang.attempt() == {}
gang.progress(1)
gang.joined(); gang.checkpoint_loaded(1.5)
with gang.joining(), gang.loading():
    pass
gang.checkpoint_begun(1, "ram"); gang.checkpoint_completed(1, "ram"); gang.checkpoint_dropped(1, "ram")
gang.checkpoint_verified(1); gang.request_restart("no"); gang.corrupt(since_step=1, why="no"); gang.on_stop(print)
assert list(gang.events()) == []
import threading
assert threading.active_count() == 1
"""


LOADS = """
import gangclient
gang = gangclient.connect()
try:
    with gang.loading():
        raise KeyError("a checkpoint that can't be read")
except KeyError:
    print("raised")
gang.joined()
gang.joined(1.5)
gang.checkpoint_loaded(2.5)
gang.checkpoint_loaded(7.5)
gang.progress(1201, seconds=0.75)
"""


async def test_a_loading_is_sent_once_and_before_the_first_step(module: Path) -> None:
    async with training(module, RESTORE) as here:
        assert await script(LOADS, environment(module, here.sidecar.socket)) == "raised\n"
        progress = await here.supervisor.wait_for(wire.Progress)
        assert progress.first_ms == 750
        assert here.supervisor.all(wire.Reached) == [
            wire.Reached(3, wire.Milestone.RENDEZVOUS, 0, None, rank=4),
            wire.Reached(3, wire.Milestone.CHECKPOINT_LOAD, 0, 2500, rank=4),
        ]
        assert here.supervisor.received.index(here.supervisor.all(wire.Reached)[0]) < here.supervisor.received.index(
            progress
        )


NO_DURATION = """
import gangclient
class Odd:
    def __float__(self):
        raise RuntimeError("no number")
for wrong in (-1, float("nan"), float("inf"), 10**400, 1e10, "soon", None, [], Odd()):
    gang = gangclient.connect()
    gang.checkpoint_loaded(wrong)
    if wrong is not None:
        gang.progress(1201, seconds=wrong)
    gang._sender._flush()
"""


async def test_an_invalid_duration_is_logged_and_its_step_still_counts(module: Path) -> None:
    async with training(module, RESTORE) as here:
        printed = await script(NO_DURATION, environment(module, here.sidecar.socket))
        assert printed.count("the loading of the checkpoint is not reported") == 9
        assert printed.count("the step is reported, its duration is not") == 8
        progress = await here.supervisor.wait_for(wire.Progress)
        assert (progress.first_step, progress.first_ms) == (1201, None)
        assert here.supervisor.all(wire.Reached) == []


async def test_a_client_that_is_newer_than_its_sidecar_only_logs_it(module: Path) -> None:
    async def unknown(_request: web.Request) -> web.Response:
        return web.json_response({"error": {"reason": "PathUnknown", "message": "there is no such path"}}, status=404)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", unknown)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(module / "old.sock")).start()
        printed = await script(LOADS, environment(module, module / "old.sock"))
    finally:
        await runner.cleanup()
    assert "the loading of the checkpoint is not reported" in printed
    assert "PathUnknown" in printed


async def test_no_call_does_anything_outside_of_gangctl(module: Path) -> None:
    assert await script(NOWHERE, environment(module, None)) == ""


FAST = """
import threading, gangclient._calls
threads, call = set(), gangclient._calls.call
def noted(*request):
    threads.add(threading.current_thread() is threading.main_thread())
    return call(*request)
gangclient._calls.call = noted
gang = gangclient.connect()
gang.checkpoint_loaded(1.5)
for step in range(1201, 21201):
    gang.progress(step)
print("requests in the main thread:", True in threads)
"""


async def test_progress_never_waits_for_a_frozen_sidecar_nor_delays_the_end(module: Path) -> None:
    async with training(module, RESTORE) as here:
        with frozen(here):
            printed = await script(FAST, environment(module, here.sidecar.socket))
            assert printed == "requests in the main thread: False\n"


async def test_progress_keeps_the_first_and_the_last_of_many(module: Path) -> None:
    async with training(module, RESTORE) as here:
        await script(FAST, environment(module, here.sidecar.socket))
        await until(lambda: here.supervisor.all(wire.Progress) and here.supervisor.all(wire.Progress)[-1].step == 21200)
        assert here.supervisor.all(wire.Progress)[0].first_step == 1201
        assert len(here.supervisor.all(wire.Progress)) < 200, "once a second, of 20,000 calls"


NEVER = """
import gangclient
gang = gangclient.connect()
class Broken:
    def __int__(self): raise RuntimeError("device lost")
for step in (Broken(), None, "x", float("nan"), -1):
    for phase in ("Step", "Nonsense", None):
        gang.progress(step, phase=phase, seconds="x")
"""


@pytest.mark.parametrize("socket", ["gone.sock", "folder/gone.sock", "gangclient/__init__.py", "s" * 300])
async def test_progress_never_raises(module: Path, socket: str) -> None:
    await script(NEVER, environment(module, module / socket))


async def test_invalid_progress_is_logged_once_and_later_progress_arrives(module: Path) -> None:
    source = NEVER + "import time\ntime.sleep(0.6)\ngang.progress(1300)"
    async with training(module, RESTORE) as here:
        printed = await script(source, environment(module, here.sidecar.socket))
        assert "progress is not reported" in printed
        await until(lambda: here.supervisor.all(wire.Progress) and here.supervisor.all(wire.Progress)[-1].step == 1300)


FORK = """
import os, gangclient
gang = gangclient.connect(rank=5)
gang.progress(1201)
child = os.fork()
gang.progress(1300 if child else 1400)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


async def test_a_forked_process_reports_too(module: Path) -> None:
    async with training(module, RESTORE) as here:
        await script(FORK, environment(module, here.sidecar.socket))
        await until(lambda: here.supervisor.all(wire.Progress) and here.supervisor.all(wire.Progress)[-1].step == 1400)


SIGNALLED = """
import os, signal, gangclient
gang = gangclient.connect()
depth = 0
def handler(*_):
    global depth
    depth += 1
    if depth < 20:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
    gang.progress(1201)
    gang.checkpoint_loaded(0.5)
    depth -= 1
signal.signal(signal.SIGALRM, handler)
for step in range(1201, 60000):
    gang.progress(step)
    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
"""
"""On a slow machine the handler takes longer than the timer: without a bound, it would be in itself ever deeper."""


async def test_progress_may_be_called_in_a_signal_handler_that_interrupts_itself(module: Path) -> None:
    async with training(module, RESTORE) as here:
        await script(SIGNALLED, environment(module, here.sidecar.socket))
