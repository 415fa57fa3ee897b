"""State that is kept where collectives and steps are queued for a device, as with NCCL; a thread stands in for it.

The collective's kernel waits for a lost peer. The abort ends it, as that of NCCL does, with a part of the gradients.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from gangclient import Client, Event, _session
from gangclient._parking import Channel, NextAttempt
from gangclient._session import Session
from gangclient.pytorch import KeptState
from tests.wait import SECONDS, until

ALONE, OF_ALL = 1.0, 2.0
"""The gradient of this rank, and the sum of all."""
FAULT, PLANNED = Event("stop", 0, "a peer is lost"), Event("stop", 0, "suspended", planned=True)


class Device:
    """Runs what is queued, in order, and has one parameter."""

    def __init__(self) -> None:
        self.weight, self.gradient = 0.0, ALONE
        self.aborted = threading.Event()
        self.queue: Queue[Callable[[], object]] = Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.queue.get()()
            self.queue.task_done()

    def apply(self) -> None:
        self.weight -= self.gradient

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}


class OneStop(Channel):
    """A supervisor's channel: the stop comes when a kernel runs, and the next attempt is there at once."""

    def __init__(self, on_stop: Callable[[Event], None], _on_late: object) -> None:
        self.stop = on_stop

    def park(self, attempt: int) -> NextAttempt:
        return NextAttempt(attempt + 1, {"GANG_ATTEMPT": str(attempt + 1)}, [])

    def close(self) -> None:
        pass


class NoHelpers:
    """The process is that of all tests, and keeps its fork server."""

    def end(self) -> None:
        pass

    def go_on(self) -> None:
        pass


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made = Device()
    stream = SimpleNamespace(synchronize=made.queue.join)
    cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    for name in [name for name in os.environ if name.startswith("GANG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(_session, "Helpers", NoHelpers)
    monkeypatch.setenv("GANG_PROCESS_TIER", "live")
    monkeypatch.setenv("GANG_ATTEMPT", "0")
    yield made
    gc.unfreeze()


def offered(device: Device, kernel: Callable[[Callable[[Event], None]], object]) -> list[tuple[int, float]]:
    """The steps that are offered as one step is made, with the weight that the device has then."""
    kept, offers, channels = KeptState(lambda: {"model": device}), list[tuple[int, float]](), list[OneStop]()

    def offer(gang: Client) -> None:
        gang.checkpoint_completed = lambda step, *_, **__: offers.append((step, device.weight))  # type: ignore[assignment]
        device.queue.join()
        kept.offer(gang)

    def open_channel(*callbacks: Any) -> OneStop:
        channels.append(OneStop(*callbacks))
        return channels[0]

    def train(gang: Client) -> None:
        if gang.number:
            return
        kept.begin(gang, lambda *_: None)
        device.queue.put(lambda: kernel(channels[0].stop))
        with kept.step(1):
            device.queue.put(device.apply)
        until("train is interrupted", lambda: gang.progress(1))

    def abort(stop: Event) -> None:
        if not stop.planned:
            device.aborted.set()

    Session([abort], [], SECONDS, at_once=False, offer=offer).run(train, open_channel)
    return offers


def test_a_collective_that_an_abort_has_cut_short_leaves_the_step_before(device: Device) -> None:
    def cut_short(stop: Callable[[Event], None]) -> None:
        stop(FAULT)
        assert device.aborted.wait(SECONDS)

    assert offered(device, cut_short) == [(0, 0.0)]


def test_a_planned_stop_that_comes_during_a_fault_hides_no_abort(device: Device) -> None:
    def cut_short(stop: Callable[[Event], None]) -> None:
        stop(FAULT)
        assert device.aborted.wait(SECONDS)
        stop(PLANNED)

    assert offered(device, cut_short) == [(0, 0.0)]


def test_a_step_whose_collective_is_complete_is_offered_at_a_planned_stop(device: Device) -> None:
    def completed(stop: Callable[[Event], None]) -> None:
        stop(PLANNED)
        device.gradient = OF_ALL

    assert offered(device, completed) == [(1, -OF_ALL)]
