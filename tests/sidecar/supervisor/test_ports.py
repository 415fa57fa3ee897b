"""The search for free ports, with real sockets: where there is none, it goes on until there is one."""

from __future__ import annotations

import socket
from collections.abc import Callable

from gangsidecar.supervisor.lookups import PortSearch
from gangsidecar.supervisor.machine import PortsFound
from tests.ports import free_port


class Timers:
    """What the search needs of an event loop; time passes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def at(self, _when_ms: int, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def pass_time(self) -> None:
        due, self.waiting = self.waiting, []
        for call in due:
            call()


def test_a_port_that_gets_free_is_found_later() -> None:
    found: list[PortsFound] = []
    timers = Timers()
    search = PortSearch(timers, "pod", found.append)
    with socket.socket() as other:
        other.bind(("", 0))
        taken = other.getsockname()[1]
        search.begin(1, taken, 1)
        search.begin(2, taken, 1)
        timers.pass_time()
        assert found == [PortsFound(1, ()), PortsFound(2, ())], "said once for each attempt"
    timers.pass_time()
    assert found[2:] == [PortsFound(2, (taken,))], "nothing more is said of an older attempt"
    assert not timers.waiting
    search.begin(3, 0, 0)


def test_the_search_ends_when_the_worker_starts() -> None:
    found: list[PortsFound] = []
    timers = Timers()
    search = PortSearch(timers, "pod", found.append)
    search.begin(1, 70_000, 1)
    search.end()
    timers.pass_time()
    assert found == [PortsFound(1, ())]
    assert not timers.waiting


def test_two_gangs_that_start_together_on_a_host_find_different_ports() -> None:
    found: list[PortsFound] = []
    base = free_port()
    one, another, third = searches = [PortSearch(Timers(), "pod", found.append) for _ in range(3)]
    for each in searches:
        each.begin(1, base, 8)
    first, second, rest = (set(each.ports) for each in found)
    assert first
    assert second
    assert not first & second
    assert rest, "where others have claimed all, a free one still serves"
    one.begin(2, base, 8)
    assert not second & set(found[3].ports)
    another.begin(2, 0, 0)
    one.begin(3, base, 8)
    third.begin(2, base, 8)
    assert found[6].ports, "claims end with their attempt"
    assert not set(found[5].ports) & set(found[6].ports)
    for each in searches:
        each.begin(4, 0, 0)
