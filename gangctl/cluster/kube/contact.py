"""Keep pods able to reach the hub: its URL, the address of its Service, and the CA that their sidecars trust.

The rule: they are annotations of the pod, which the kubelet copies into files of the sidecar, also when they change. So
a new CA reaches the pods that run, without a restart, and the pods of a gang that another controller has managed until
now learn that this controller does. Each pod whose annotations differ from those that a new pod would get is patched,
by the leader alone and a few at a time. A patch names the pod's UID and goes to its ``status``, where the API server
ignores a change of the spec: gangctl needs no right to change what a pod runs. A failure only delays it, and pods that
are refused must not delay others.

The address, by which sidecars dial the hub without asking DNS, is known only if sidecars dial the Service of this
installation and the Service has a cluster IP. What can't be read now stays as it was. Nothing may depend on it: a
sidecar without it, or with a wrong address, dials by name.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, NoReturn
from urllib.parse import urlsplit

from gangctl.cluster.errors import ClusterError, Conflict
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound
from gangctl.cluster.kube.projections import PODS, HubContact, KubePod
from gangctl.cluster.kube.reflector import NamespacedCopy
from gangctl.cluster.kube.settings import KubeSettings

log = logging.getLogger(__name__)

ADDRESS_SECONDS: Final = 30.0
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
            await asyncio.sleep(ADDRESS_SECONDS)

    async def _refresh(self) -> None:
        try:
            found = ((await self._client.get(self._path)).get("spec") or {}).get("clusterIP", "")
        except NotFound:
            found = ""
        except ClusterError as error:
            if str(error) != self._problem:
                log.warning("the address of the hub's Service can't be read; new pods use its name: %s", error)
            self._problem = str(error)
            return
        self.address, self._problem = ("" if found == "None" else found), ""


CHECK_SECONDS: Final = 5.0
"""Time between two looks at all pods."""
MAX_REQUESTS: Final = 8
"""Number of requests at once."""


class ContactUpdater:
    """Patches the pods whose contact is out of date."""

    def __init__(
        self, client: Client, pods: NamespacedCopy[KubePod], owned: Callable[[str], KubePod | None], url: str
    ) -> None:
        """Give it what it needs.

        Args:
            client: sends the patches.
            pods: the informer that gets what was written.
            owned: the pod of this UID, if a gang of this controller owns it.
            url: of this controller's hub.
        """
        self.leads = False
        self._client = client
        self._pods = pods
        self._owned = owned
        self._url = url
        self._has_problem = False
        """Whether a pod could not be patched in the last round."""

    async def run(self, ca: Callable[[], str], address: Callable[[], str | None]) -> NoReturn:
        """Look at all pods again and again until cancelled.

        Args:
            ca: The authorities that a new pod would trust; empty = not known yet.
            address: The address that it would get; None = not known yet, so each pod keeps its own.
        """
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self.leads and ca():
                await self._update(ca(), address())

    async def _update(self, ca: str, address: str | None) -> None:
        owned = filter(None, map(self._owned, tuple(self._pods.items)))
        stale = [(pod, contact) for pod in owned if (contact := self._news(pod, ca, address)) is not None]
        if stale:
            log.info("%d pods get the hub's new URL, CA or address", len(stale))
        random.shuffle(stale)  # In the same order, those that are refused would come first each time.
        problems = list[str]()
        for at in range(0, len(stale), MAX_REQUESTS):
            some = await asyncio.gather(*(self._patch(*one) for one in stale[at : at + MAX_REQUESTS]))
            problems += filter(None, some)
            if all(some) or not self.leads:
                break
        if problems and not self._has_problem:
            log.warning("pods can't get the hub's new URL, CA or address now; this is tried again: %s", problems[0])
        self._has_problem = bool(problems)

    async def _patch(self, pod: KubePod, contact: HubContact) -> str:
        """Patch a pod; why it couldn't be done, or empty."""
        change = {"metadata": {"uid": pod.uid, "annotations": contact.annotations()}}
        path = f"{paths.pod(pod.namespace, pod.pod.name)}/status"
        try:
            answer = await self._client.request("PATCH", path, body=change)
        except (NotFound, Conflict):  # It is gone.
            return ""
        except ClusterError as error:
            return str(error)
        item = PODS.item(answer)
        if item is not None:
            self._pods.put(item)
        return ""

    def _news(self, pod: KubePod, ca: str, address: str | None) -> HubContact | None:
        """Return the contact that the pod must get; None if it has it."""
        before = pod.contact
        if before is None or pod.pod.deleting or pod.pod.terminated:
            return None
        if address is None:
            address = before.address if before.url == self._url else ""
        after = HubContact(ca, self._url, address)
        return None if after == before else after
