"""The IP address of the hub's Service, by which sidecars dial the hub without asking DNS.

The rule: it is known only if sidecars dial the Service of this installation and the Service has a cluster IP. What
can't be read now stays as it was. Nothing may depend on it: a sidecar without it, or with a wrong one, dials by name.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final, NoReturn
from urllib.parse import urlsplit

from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound
from gangctl.cluster.kube.settings import KubeSettings

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 30.0
"""Time between two reads: a Service that is made again has another address."""


class ServiceAddress:
    """Reads the address of one Service."""

    def __init__(self, client: Client, settings: KubeSettings) -> None:
        self.address: str | None = None
        """Empty = there is none; None = it hasn't been read yet."""
        self._client = client
        self._path = paths.service(settings.namespace, settings.name)
        name, dialled = f"{settings.name}.{settings.namespace}.svc", urlsplit(settings.url).hostname or ""
        self._is_dialled = dialled == name or dialled.startswith(f"{name}.")
        self._problem = ""

    async def run(self) -> NoReturn:
        """Read it regularly until cancelled."""
        while True:
            if self._is_dialled:
                await self._refresh()
            else:
                self.address = ""
            await asyncio.sleep(REFRESH_SECONDS)

    async def _refresh(self) -> None:
        try:
            answer = json.loads(await self._client.request("GET", self._path))
            found = (answer.get("spec") or {}).get("clusterIP", "")
        except NotFound:
            found = ""
        except (ClusterError, ValueError) as error:
            if str(error) != self._problem:
                log.warning("the address of the hub's Service can't be read; new pods use its name: %s", error)
            self._problem = str(error)
            return
        self.address, self._problem = ("" if found == "None" else found), ""
