"""The process's end of the channel on which it parks."""

from __future__ import annotations

import json
import socket
import threading
import time
from functools import partial
from typing import Any

import pytest

import gangclient
from gangclient._parking import Channel
from tests.sidecar.supervisor.supervised import wait_for
from tests.wait import SECONDS


def test_the_time_that_the_main_thread_takes_away_between_two_looks_ends_no_listening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``park`` and ``close`` set it to None at any moment."""
    times: list[float | None] = []

    def look(_channel: Channel) -> float | None:
        return times.pop() if times else None

    def put(_channel: Channel, at: float | None) -> None:
        times[:] = [] if at is None else [at]

    monkeypatch.setattr(Channel, "_late_at", property(look, put), raising=False)
    ours, theirs = socket.socketpair()
    stops: list[gangclient.Event] = []
    with ours, theirs:
        channel = Channel(ours, stops.append, lambda: pytest.fail("it has parked"))
        for attempt in (1, 2):
            theirs.sendall(stop(attempt=attempt, seconds=60.0))
            wait_for(partial(told, stops, attempt))
        channel.close()
        theirs.shutdown(socket.SHUT_RDWR)
        no_one_listens()
    assert [one.attempt for one in stops] == [1, 2]


def test_it_says_once_that_the_process_is_late_and_listens_on() -> None:
    ours, theirs = socket.socketpair()
    stops: list[gangclient.Event] = []
    late: list[float] = []
    with ours, theirs:
        channel = Channel(ours, stops.append, lambda: late.append(time.monotonic()))
        theirs.sendall(stop(attempt=1, seconds=0.02))
        wait_for(lambda: late)
        theirs.sendall(stop(attempt=2, seconds=60.0))
        wait_for(lambda: len(stops) == 2)
        channel.close()
        theirs.shutdown(socket.SHUT_RDWR)
        no_one_listens()
    assert len(late) == 1


def no_one_listens() -> None:
    """Wait for the end of the thread: what a test has replaced would be gone under it."""
    for thread in threading.enumerate():
        if thread.name == "gangclient-parking":
            thread.join(SECONDS)
            assert not thread.is_alive()


def told(stops: list[gangclient.Event], count: int) -> bool:
    return len(stops) == count


def stop(**of: Any) -> bytes:
    return json.dumps({"stop": {"reason": "why", "planned": False, **of}}).encode() + b"\n"
