"""A KubeCluster on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.cluster import KubeCluster
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.cluster.kube.tokens import TokenAuthenticator
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.fakeapi import FakeApi, serving
from tests.cluster.kube.objects import UID, gang, node
from tests.wait import until_async

SETTINGS = KubeSettings(
    namespace="gangctl-system",
    sidecar_image="gangctl/sidecar:1",
    url="wss://gangctl.gangctl-system.svc:8443/v1/connect",
    server_name="gangctl.gangctl-system.svc",
)
FIRST = CreatePod("worker-0", 0)


class LiveCluster:
    """A cluster that watches a fake API server, and the UIDs that it notified."""

    def __init__(self, api: FakeApi, client: Client, settings: KubeSettings = SETTINGS) -> None:
        self.api = api
        self.client = client
        self.notified: list[str] = []
        self.ca = "CA"
        authenticator = TokenAuthenticator(client, SETTINGS.audience)
        self.cluster = KubeCluster(client, settings, ca=lambda: self.ca, authenticator=authenticator)

    @property
    def job(self) -> GangJob:
        found = self.cluster.gang(UID)
        assert found is not None
        return found

    def names(self) -> list[str]:
        return [one.name for one in self.cluster.pods(UID)]

    def _is_shown(self) -> bool:
        found = self.cluster.informers
        shown = {uid for uid, gang in found.gangs.items.items() if found.shows(gang.namespace)}
        return found.has_synced and shown <= set(self.notified)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cluster.watch(self.notified.append))
        try:
            await until_async("everything is listed, and each gang is told once", self._is_shown)
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def live_cluster(*objects: tuple[str, dict[str, Any]]) -> AsyncIterator[LiveCluster]:
    async with serving() as (api, client):
        for plural, value in objects:
            await api.put(plural, value)
        found = LiveCluster(api, client)
        async with found.watching():
            yield found


GANG = ("gangjobs", gang())
NODE = ("nodes", node())
