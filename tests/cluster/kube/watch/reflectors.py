"""A reflector of nodes on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.reflector import Reflector
from gangctl.kubernetes.objects import Node
from tests.cluster.kube.fakeapi import FakeApi, serving
from tests.cluster.kube.objects import NODES, node
from tests.wait import until_async


class NodeReflector:
    """A reflector of nodes, and the changes that it notified."""

    def __init__(self, api: FakeApi, client: Client) -> None:
        self.api = api
        self.notified: list[tuple[str, str]] = []
        self.reflector = Reflector(client, paths.NODES, NODES, self._changed)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        self.notified.append(("" if old is None else old.name, "" if new is None else new.name))

    def names(self) -> set[str]:
        return {one.name for one in self.reflector.items.values()}

    async def sees(self, *names: str) -> None:
        await until_async("the nodes are listed", lambda: self.names() == set(names))

    async def watches(self, times: int = 1) -> None:
        await until_async("the watch works", lambda: self.api.watches() >= times and self.reflector.stale_seconds == 0)


@asynccontextmanager
async def reflecting(*names: str) -> AsyncIterator[NodeReflector]:
    async with serving() as (api, client):
        for name in names:
            await api.put("nodes", node(name))
        found = NodeReflector(api, client)
        async with running(found.reflector):
            yield found


@asynccontextmanager
async def running(one: Reflector[Node]) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
