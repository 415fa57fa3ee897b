"""Reach the leading controller of a cluster, found by its Lease: its pod, and its page through the API server.

The page comes through a port of the pod, forwarded over WebSocket. The rule: the connection ends in the pod that holds
the Lease, as the API server and the kubelet see to; the token of the user goes through it in TLS. Each request finds
the leader anew, so the page follows it to another pod.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final

import aiohttp

from gangctl.cli.errors import UserError
from gangctl.cli.page import HOST, LIMITS
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets.port import DEFAULT_LEASE, PageAccess
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound, Rejected

_PORT_NAME: Final = "page"
_PROTOCOLS: Final = ("v4.channel.k8s.io",)
_TOKEN_SECONDS: Final = 3600
_PERMISSIONS: Final = "get leases and pods, get and create pods/portforward"
_CHUNK: Final = 64 * 1024
_DATA: Final = 0
"""The channel of the first port's data; the next one has its errors."""
_SCHEME: Final = "Bearer "
_MARGIN_SECONDS: Final = 60.0
"""Tolerance for clocks that differ between machines."""


async def kill_leader(client: Client, lease: str) -> None:
    """Delete the pod that holds the Lease, without a grace period. ``lease``: NAMESPACE/NAME."""
    namespace, _, name = lease.partition("/")
    pod = await _leading_pod(client, namespace, name)
    print_out(clean(f"controller: deleting the leading pod {pod} in namespace {namespace}, without a grace period"))
    try:
        await client.request("DELETE", paths.pod(namespace, pod), body={"gracePeriodSeconds": 0})
    except NotFound:
        raise UserError(f"pod {pod}, which holds the Lease, is already gone: another controller leads soon") from None


async def _leading_pod(client: Client, namespace: str, name: str) -> str:
    spec = await _lease(client, namespace, name)
    if spec is None:
        raise UserError(
            f"there is no Lease {name} in namespace {namespace}: select the right one with --controller NAMESPACE/NAME"
        )
    pod = str(spec.get("holderIdentity") or "").partition("_")[0]
    if not pod:
        raise UserError(f"the Lease {namespace}/{name} has no holder: no controller leads now")
    return pod


async def warn_without_leader(client: Client) -> None:
    """Warn the user if no controller holds the default Lease. Without permission to read it, do nothing."""
    namespace, _, name = DEFAULT_LEASE.partition("/")
    try:
        spec = await _lease(client, namespace, name)
    except ClusterError:
        return
    if spec is not None and (not spec.get("holderIdentity") or _is_old(spec)):
        print_err(f"no controller leads now (Lease {DEFAULT_LEASE}): the gang reacts when one does")


async def _lease(client: Client, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return (await client.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")).get(
            "spec"
        ) or {}
    except NotFound:
        return None


def _is_old(spec: dict[str, Any]) -> bool:
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime"))).timestamp()
    except ValueError:
        return False
    return time.time() > renewed + float(spec.get("leaseDurationSeconds") or 0) + _MARGIN_SECONDS


class LeadingController:
    """The controller that leads at this moment."""

    def __init__(self, client: Client, access: PageAccess) -> None:
        self._client = client
        self._namespace, _, self._lease = access.lease.partition("/")
        self._account = access.service_account
        self._token = ""
        self._tls = ssl.create_default_context()
        # Its certificate has the name of a Service, and users can't read its authority. The API server has
        # authenticated the pod that this connection ends in.
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask it for a path."""
        authorization = await self._authorization()
        pod, port = await self._place()
        async with self._forwarded(pod, port) as local, aiohttp.ClientSession(timeout=LIMITS) as session:
            url = f"https://{HOST}:{local}{path}"
            async with session.get(url, headers={"Authorization": authorization}, ssl=self._tls) as answer:
                if answer.status == 401:  # noqa: PLR2004
                    self._token = ""
                yield answer

    async def _authorization(self) -> str:
        if not self._account:
            header = self._client.authorization
            if header.startswith(_SCHEME):
                return header
            raise UserError(
                "the page of a cluster checks tokens, and the kubeconfig has none: name a service account whose token "
                "it gets, with --service-account NAMESPACE/NAME; it needs the ClusterRole gangctl-page-reader, "
                "and gangctl-viewer for the gangs to see"
            )
        if not self._token:
            namespace, _, name = self._account.partition("/")
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_SECONDS},
            }
            self._token = str(json.loads(await self._client.request("POST", path, body=body))["status"]["token"])
        return f"{_SCHEME}{self._token}"

    async def _place(self) -> tuple[str, int]:
        name = await _leading_pod(self._client, self._namespace, self._lease)
        try:
            pod = await self._client.get(paths.pod(self._namespace, name))
        except NotFound:
            raise UserError(f"pod {name}, which holds the Lease, is gone: another controller leads soon") from None
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                if port.get("name") == _PORT_NAME:
                    return name, int(port["containerPort"])
        raise UserError(f"pod {name} has no port {_PORT_NAME}: set page.enabled in the chart's values")

    @asynccontextmanager
    async def _forwarded(self, pod: str, port: int) -> AsyncIterator[int]:
        """A port of this machine that leads to the pod's, for one request."""
        path = f"{paths.pod(self._namespace, pod)}/portforward"
        try:
            connecting = self._client.socket(path, query=[("ports", str(port))], protocols=_PROTOCOLS)
            async with connecting as far, _bridge(far) as local:
                yield local
        except Rejected as error:
            raise Rejected(f"{error}; the page needs the permissions {_PERMISSIONS}", error.message) from None


@asynccontextmanager
async def _bridge(far: aiohttp.ClientWebSocketResponse) -> AsyncIterator[int]:
    """A port of this machine for one connection, whose bytes go through the WebSocket."""
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if accepted.done():
            writer.transport.abort()
        else:
            accepted.set_result((reader, writer))

    async def carry() -> None:
        reader, writer = await accepted
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_send(reader, far))
                both.create_task(_receive(far, writer))
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(accept, HOST, 0)
    carrying = asyncio.create_task(carry())
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        carrying.cancel()
        await asyncio.wait((carrying,))


async def _send(reader: asyncio.StreamReader, far: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            await far.send_bytes(bytes([_DATA]) + data)
    await far.close()


async def _receive(far: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Pass on the data. The first message of each channel is the number of the port."""
    begun = set()
    with suppress(ConnectionError):
        async for message in far:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel = message.data[0]
            if channel not in begun:
                begun.add(channel)
            elif channel == _DATA:
                writer.write(message.data[1:])
                await writer.drain()
            else:
                break  # nothing listens there, or the pod is gone
    writer.close()
