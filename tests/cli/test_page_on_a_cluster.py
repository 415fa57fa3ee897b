"""`gangctl ui` on a cluster: a fake API server that forwards ports, and real replicas of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gangctl.cli.errors import UserError
from gangctl.cli.page import check_page
from gangctl.cli.targets.leader import LeadingController
from gangctl.cli.targets.port import PageAccess
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import Client
from gangctl.controller.page import routes
from tests.cli.here import manifest
from tests.cluster.kube.fakeapi import FakeApi, serving
from tests.controller.replicas import Replica, replica
from tests.controller.test_metrics import ACCESS as ACCESS_REVIEWS
from tests.controller.test_metrics import Reviewer
from tests.ports import free_port
from tests.wait import SECONDS, until_async


@dataclass
class PortForwarding:
    """The API server's port-forward, to a port of this machine."""

    pods: list[str] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("/portforward"):
            return None
        self.pods.append(request.path.split("/")[-2])
        port = int(request.query["ports"])
        far = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await far.prepare(request)
        for channel in (0, 1):
            await far.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            await far.send_bytes(b"\x01" + str(error).encode())
            await far.close()
            return far

        async def back() -> None:
            while data := await reader.read(4096):
                await far.send_bytes(b"\x00" + data)
            await far.close()

        carrying = asyncio.create_task(back())
        try:
            async for message in far:
                writer.write(message.data[1:])
        finally:
            writer.transport.abort()
            carrying.cancel()
        return far


async def pod_of(api: FakeApi, found: Replica, port: int, name: str = "page") -> None:
    """Store the pod of a replica."""
    container = {"name": "controller", "ports": [{"name": "hub"}, {"name": name, "containerPort": port}]}
    metadata = {"name": found.name, "namespace": "default"}
    await api.put("pods", {"metadata": metadata, "spec": {"containers": [container]}})


PATIENT = ("--lease-duration", "300", "--renew-deadline", "200")
"""A leader keeps its Lease on a busy machine. The next one need not wait: a replica that ends releases it."""


@asynccontextmanager
async def leading(api: FakeApi, name: str) -> AsyncIterator[tuple[Replica, int]]:
    port = free_port()
    async with replica(api, name, "--page", "true", "--page-port", str(port), *PATIENT) as found:
        await pod_of(api, found, port)
        await found.until_ready()
        yield found, port


def with_token(api: FakeApi, token: str) -> Client:
    access = api.credentials()
    access.authorization = lambda: f"Bearer {token}" if token else ""
    return Client(access)


ACCESS = PageAccess(lease="default/gangctl")


async def test_on_a_cluster_the_page_needs_a_token_of_a_user_who_may_get_it() -> None:
    async with serving() as (api, _), aiohttp.ClientSession() as session:
        reviewer = Reviewer()
        api.faults += [reviewer, PortForwarding()]
        async with leading(api, "first") as (first, port):
            await first.until_it_leads()
            for path in ("", "page.js", "gangs", "gangs/default/g"):
                url = f"https://127.0.0.1:{port}/ui/{path}"
                async with session.get(url, ssl=False) as answer:
                    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
                    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert reviewer.asked == []
            async with with_token(api, "other") as client:
                with pytest.raises(UserError, match="the controller refuses: user jane may not get /ui: bind a"):
                    await check_page(LeadingController(client, ACCESS))
            async with with_token(api, "good") as client:
                upstream = LeadingController(client, ACCESS)
                await check_page(upstream)

                async def shows_a_list() -> bool:
                    async with upstream.get("/ui/gangs") as stream:
                        return b"event: list" in await stream.content.readuntil(b"data: {")

                await until_async("it has caught up", shows_a_list, every=0.05)
            paths = [one["nonResourceAttributes"] for one in reviewer.asked if "nonResourceAttributes" in one]
            assert {one["path"] for one in paths} == {"/ui"}


async def test_on_a_cluster_the_page_follows_the_leader_to_another_pod() -> None:
    async with serving() as (api, _):
        forwarding = PortForwarding()
        api.faults += [Reviewer(), forwarding]
        async with leading(api, "first") as (first, _), leading(api, "second") as (second, _):
            await first.until_it_leads()
            async with with_token(api, "good") as client:
                upstream = LeadingController(client, ACCESS)
                await check_page(upstream)
                async with upstream.get("/ui/gangs") as watched:
                    first.ended.set()
                    await second.until_it_leads()
                    await _ends(watched)
                await check_page(upstream)
            assert forwarding.pods == ["first", "first", "second"]


@dataclass
class Rights:
    """The API server's answers to who may list gangs where; a fault of a FakeApi."""

    namespaces: set[str] = field(default_factory=set)
    """Of the user prometheus; "" = all."""
    asked: list[str] = field(default_factory=list)
    away: bool = False

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if request.path != ACCESS_REVIEWS:
            return None
        spec = (await request.json())["spec"]
        if "resourceAttributes" not in spec:
            return None
        if self.away:
            return web.Response(status=503)
        attributes = spec["resourceAttributes"]
        namespace = attributes.pop("namespace")
        assert attributes == {"group": "gangctl.io", "resource": "gangjobs", "verb": "list"}
        assert (spec["user"], spec["groups"], spec["extra"]) == ("prometheus", ["monitoring"], {"key": ["value"]})
        self.asked.append(namespace)
        return web.json_response({"status": {"allowed": namespace in self.namespaces}}, status=201)


async def test_on_a_cluster_a_viewer_sees_gangs_of_namespaces_in_which_it_may_list_them() -> None:
    async with serving() as (api, _), aiohttp.ClientSession(headers={"Authorization": "Bearer good"}) as session:
        rights = Rights({"team"}, away=True)
        api.faults += [rights, Reviewer()]
        for namespace in ("other", "team"):
            await api.put("gangjobs", {**manifest(), "metadata": {"name": "g", "namespace": namespace}})
        async with leading(api, "first") as (first, port):
            await first.until_it_leads()

            async def answer(path: str) -> tuple[int, str]:
                async with session.get(f"https://127.0.0.1:{port}/ui/{path}", ssl=False) as found:
                    streams = found.content_type == "text/event-stream"
                    return found.status, str(await found.content.readuntil(b"}]}") if streams else await found.read())

            code, text = await answer("gangs")
            assert (code, "what you may see can't be found out now" in text) == (503, True)
            rights.away = False

            async def shows_the_list() -> bool:
                code, text = await answer("gangs")
                assert '"namespace":"other"' not in text
                return code == 200 and '"isPartial":true' in text and '"namespace":"team"' in text

            await until_async("it shows the gang", shows_the_list, every=0.1)
            code, text = await answer("gangs/other/g")
            assert (code, "user prometheus may not list gangjobs.gangctl.io in namespace other" in text) == (403, True)
            assert rights.asked.count("team") == 1, "a yes is kept"


async def test_on_a_cluster_a_viewer_that_leaves_makes_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_STREAMS", 1)
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 3600)
    async with serving() as (api, _), aiohttp.ClientSession(headers={"Authorization": "Bearer good"}) as session:
        api.faults.append(Reviewer())
        async with leading(api, "first") as (first, port):
            await first.until_it_leads()

            async def is_admitted() -> bool:
                async with session.get(f"https://127.0.0.1:{port}/ui/gangs", ssl=False) as stream:
                    return stream.status == 200 and bool(await stream.content.readuntil(b"event: list"))

            for _ in range(3):
                await until_async("there is room for it", is_admitted)


async def _ends(stream: aiohttp.ClientResponse) -> None:
    """Wait for the end of a stream, however it ends."""
    with suppress(aiohttp.ClientError):
        async with asyncio.timeout(SECONDS):
            await stream.content.read()


async def test_on_a_cluster_a_standby_names_the_page_of_the_leader() -> None:
    async with serving() as (api, _), aiohttp.ClientSession(headers={"Authorization": "Bearer good"}) as session:
        api.faults.append(Reviewer())
        async with leading(api, "first") as (first, _):
            await first.until_it_leads()
            port = free_port()
            second = ("--page", "true", "--page-port", str(port), "--pod-ip", "127.0.0.1", *PATIENT)
            async with replica(api, "second", *second):

                async def told() -> str:
                    async with session.get(f"https://127.0.0.1:{port}/ui/gangs", ssl=False) as answer:
                        return (await answer.text()) if answer.status == 503 else ""

                url = f"https://127.0.0.1:{port}/ui/"  # All replicas have the same port.
                await until_async("it knows the leader", lambda: _contains(told, f"the page of the leader is {url}"))


async def _contains(ask: Any, text: str) -> bool:
    try:
        return text in await ask()
    except aiohttp.ClientConnectionError:
        return False


async def test_on_a_cluster_each_reason_why_there_is_no_page_is_told() -> None:
    async with serving() as (api, client):
        with pytest.raises(UserError, match=r"checks tokens, and the kubeconfig has none: .* --service-account"):
            await check_page(LeadingController(client, ACCESS))
        api.faults += [Reviewer(), PortForwarding()]
        async with with_token(api, "good") as known:
            upstream = LeadingController(known, ACCESS)
            with pytest.raises(UserError, match="there is no Lease gangctl in namespace default"):
                await check_page(upstream)
            async with replica(api, "first") as first:
                await first.until_ready()
                await first.until_it_leads()
                with pytest.raises(UserError, match="pod first, which holds the Lease, is gone"):
                    await check_page(upstream)
                await pod_of(api, first, 1, name="metrics")
                with pytest.raises(UserError, match=r"has no port page: set page.enabled"):
                    await check_page(upstream)
                await api.remove("pods", "default", "first")
                await pod_of(api, first, free_port())
                with pytest.raises((UserError, ClusterError)):
                    await check_page(upstream)


async def test_on_a_cluster_a_token_of_a_service_account_is_used_and_renewed() -> None:
    async with serving() as (api, client):
        made: list[str] = []

        async def issue(request: web.Request) -> web.StreamResponse | None:
            if not request.path.endswith("/serviceaccounts/viewer/token"):
                return None
            made.append(request.path.split("/")[4])
            return web.json_response({"status": {"token": "expired" if len(made) == 1 else "good"}}, status=201)

        api.faults += [Reviewer(), PortForwarding(), issue]
        async with leading(api, "first") as (first, _):
            await first.until_it_leads()
            upstream = LeadingController(client, PageAccess(lease=ACCESS.lease, service_account="research/viewer"))
            with pytest.raises(UserError, match="doesn't accept the token"):
                await check_page(upstream)
            await check_page(upstream)
            await check_page(upstream)
        assert made == ["research", "research"]
