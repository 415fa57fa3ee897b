"""A store that is restored from a backup: versions go back, and what it has now is believed all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube import reflector
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.reflector import Reflector
from gangctl.kubernetes.objects import Node
from tests.cluster.kube.objects import NODES
from tests.wait import until_async


def node(uid: str, version: int, ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


class Store:
    """Answers lists; its watches stay open and quiet."""

    def __init__(self) -> None:
        self.version = 1000
        self.nodes = [node("n1", 990), node("n3", 800)]
        self.gates: list[asyncio.Event] = []
        self.lists = 0
        self.watch_seconds: float | None = None
        """After so long a watch breaks, as the client ends a silent one; None = never."""

    async def request(self, *_: object, **__: object) -> bytes:
        self.lists += 1
        body = json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": self.nodes}).encode()
        if self.gates:
            await self.gates.pop(0).wait()
        return body

    @asynccontextmanager
    async def lines(self, *_: object, **__: object) -> AsyncIterator[AsyncIterator[bytes]]:
        async def quiet() -> AsyncIterator[bytes]:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.watch_seconds):
                    await asyncio.Event().wait()
            raise Retryable("nothing came")
            yield b""

        yield quiet()

    def restore(self) -> None:
        self.version = 500
        self.nodes = [node("n1", 480, "Unknown"), node("n2", 490)]


def of(store: Store) -> Reflector[Node]:
    return Reflector(cast("Client", store), "/nodes", NODES, lambda _old, _new: None)


def shown(nodes: Reflector[Node]) -> dict[str, bool]:
    return {one.name: one.is_lost for one in nodes.items.values()}


async def test_a_new_list_of_a_restored_store_is_believed() -> None:
    store = Store()
    nodes = of(store)
    await nodes.refresh()
    store.restore()
    await nodes.refresh()
    assert shown(nodes) == {"n1": True, "n2": False}


async def test_an_object_that_was_deleted_before_the_backup_was_restored_is_back() -> None:
    store = Store()
    nodes = of(store)
    await nodes.refresh()
    nodes.drop("n1")
    store.restore()
    await nodes.refresh()
    assert shown(nodes) == {"n1": True, "n2": False}


async def test_a_list_that_began_earlier_does_not_replace_one_that_began_later() -> None:
    store = Store()
    nodes = of(store)
    await nodes.refresh()
    slow = asyncio.Event()
    store.gates = [slow]
    first = asyncio.create_task(nodes.refresh())
    await until_async("the slow list has begun", lambda: store.lists == 2)
    store.restore()
    await nodes.refresh()
    slow.set()
    await first
    assert shown(nodes) == {"n1": True, "n2": False}


async def test_an_object_written_while_a_list_is_under_way_stays() -> None:
    store = Store()
    nodes = of(store)
    slow = asyncio.Event()
    store.gates = [slow]
    listing = asyncio.create_task(nodes.refresh())
    await until_async("the list has begun", lambda: store.lists == 1)
    written = NODES.item(json.dumps(node("n4", 1001)).encode())
    assert written is not None
    nodes.put(written)
    slow.set()
    await listing
    assert shown(nodes) == {"n1": False, "n3": False, "n4": False}


@pytest.mark.parametrize("watch_seconds", [None, 0.02])
async def test_a_watch_that_shows_nothing_is_given_up_and_everything_is_listed_again(
    monkeypatch: pytest.MonkeyPatch, watch_seconds: float | None
) -> None:
    monkeypatch.setattr(reflector, "QUIET_SECONDS", 0.05)
    store = Store()
    store.watch_seconds = watch_seconds
    nodes = of(store)
    running = asyncio.create_task(nodes.run())
    await until_async("everything is listed", lambda: "n3" in shown(nodes))
    store.restore()
    await until_async("what was restored is shown", lambda: shown(nodes) == {"n1": True, "n2": False})
    running.cancel()
