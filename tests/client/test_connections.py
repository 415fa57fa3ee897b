"""The connections of a process group are shut down, and nothing else; with plain sockets in place of PyTorch's."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gangclient._connections import Connections
from tests.wait import SECONDS, until


class Group:
    """What gloo and the store open, and what another thread opens meanwhile."""

    def __init__(self, stack: ExitStack) -> None:
        self.listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        self.gloo, self.store, self.other = (
            stack.enter_context(socket.create_connection(one.getsockname())) for one in self.listeners
        )
        for one in (self.gloo, self.store, self.other):
            one.settimeout(SECONDS)
        self.port = str(self.store.getpeername()[1])
        self._stack = stack

    def watch(self) -> None:
        epoll = self._stack.enter_context(select.epoll())
        epoll.register(self.gloo, select.EPOLLIN)
        epoll.register(self.listeners[0], select.EPOLLIN)

    def closed(self) -> list[bool]:
        """Of each connection, whether its reader reads the end."""
        return [bool(select.select([one], [], [], 0)[0]) for one in (self.gloo, self.store, self.other)]


@pytest.fixture
def group() -> Iterator[Group]:
    with ExitStack() as stack:
        one = Group(stack)
        other = stack.enter_context(select.epoll())
        other.register(one.other, select.EPOLLIN)
        yield one


def test_only_connections_of_the_group_are_shut_down(group: Group) -> None:
    connections = Connections()
    with connections.opened(1):
        group.watch()
    connections.end(1, group.port)
    assert group.closed() == [True, True, False]
    with socket.create_connection(group.listeners[0].getsockname(), SECONDS):
        assert connections.has_ended(1)
        assert not connections.has_ended(2)


def test_a_thread_that_waits_for_a_peer_while_it_joins_reads_the_end(group: Group) -> None:
    connections, read = Connections(), []
    with connections.opened(1):
        group.watch()
        waiting = threading.Thread(target=lambda: read.append(group.gloo.recv(1)))
        waiting.start()
        connections.end(1, group.port)
        until("the end is read", lambda: read == [b""])
        waiting.join(SECONDS)


@pytest.mark.parametrize("attempt", [1, 2])
def test_nothing_is_shut_down_of_a_group_that_was_left_or_of_another_attempt(group: Group, attempt: int) -> None:
    connections = Connections()
    with connections.opened(1):
        group.watch()
    if attempt == 1:
        connections.forget()
    connections.end(attempt, group.port)
    assert group.closed() == [False] * 3
