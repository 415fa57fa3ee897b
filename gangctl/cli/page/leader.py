"""The page of a cluster's leading controller, through the API server: a port of its pod, forwarded over WebSocket.

The rule: the connection ends in the pod that holds the Lease, as the API server and the kubelet see to; the token of
the user goes through it in TLS. Each request finds the leader anew, so the page follows it to another pod.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp

from gangctl.cli.errors import UserError
from gangctl.cli.page.proxy import HOST, LIMITS
from gangctl.cli.targets.gangjobs import checked
from gangctl.cli.targets.leader import leading_pod
from gangctl.cli.targets.port import PageAccess
from gangctl.cluster.kube.client import Client, NotFound, Rejected

PORT_NAME: Final = "page"
PROTOCOLS: Final = ("v4.channel.k8s.io",)
TOKEN_SECONDS: Final = 3600
PERMISSIONS: Final = "get leases and pods, get and create pods/portforward"
_CHUNK: Final = 64 * 1024
_DATA: Final = 0
"""The channel of the first port's data; the next one has its errors."""
_SCHEME: Final = "Bearer "


class LeadingController:
    """The controller that leads at this moment."""

    def __init__(self, client: Client, access: PageAccess) -> None:
        """Raise UserError if a name of the access has no namespace."""
        self._client = client
        self._namespace, self._lease = _parts(access.lease, "--controller")
        self._account = access.service_account and _parts(access.service_account, "--service-account")
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
            namespace, name = self._account
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": TOKEN_SECONDS},
            }
            answer: dict[str, Any] = json.loads(
                await self._client.request("POST", path, body=json.dumps(body).encode())
            )
            self._token = str(answer["status"]["token"])
        return f"{_SCHEME}{self._token}"

    async def _place(self) -> tuple[str, int]:
        """Pod and port of the page."""
        name = await leading_pod(self._client, self._namespace, self._lease)
        try:
            pod: dict[str, Any] = json.loads(
                await self._client.request("GET", f"/api/v1/namespaces/{self._namespace}/pods/{name}")
            )
        except NotFound:
            raise UserError(f"pod {name}, which holds the Lease, is gone: another controller leads soon") from None
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                if port.get("name") == PORT_NAME:
                    return name, int(port["containerPort"])
        raise UserError(f"pod {name} has no port {PORT_NAME}: set page.enabled in the chart's values")

    @asynccontextmanager
    async def _forwarded(self, pod: str, port: int) -> AsyncIterator[int]:
        """A port of this machine that leads to the pod's, for one request."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/portforward"
        try:
            connecting = self._client.socket(path, query=[("ports", str(port))], protocols=PROTOCOLS)
            async with connecting as far, _bridge(far) as local:
                yield local
        except Rejected as error:
            raise Rejected(f"{error}; the page needs the permissions {PERMISSIONS}", error.message) from None


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


def _parts(name: str, flag: str) -> tuple[str, str]:
    namespace, slash, its = name.partition("/")
    if not slash or not its:
        raise UserError(f"{flag} is {name!r}: use NAMESPACE/NAME")
    return checked(namespace, "namespace"), checked(its, "name")
