"""The controller's servers on IPv4 and IPv6, with real sockets."""

from __future__ import annotations

import ipaddress
from functools import partial
from urllib.parse import urlsplit

import aiohttp
import pytest

from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller.endpoints import Health
from gangctl.controller.hub import Hub
from tests import ipv6
from tests.controller.fake_sidecars import held


async def unknown(_token: str) -> MemberIdentity | Refusal:
    return Refusal(RefusalReason.UNKNOWN_POD, "the token is unknown")


def leads() -> str | None:
    return None


def quiet(_: str) -> None:
    return None


def hub() -> Hub:
    return Hub(unknown, lambda stored, _before: partial(held, stored), quiet, quiet, leads)


async def asked(url: str) -> int:
    """The status of a sidecar's first request there."""
    async with aiohttp.ClientSession() as session:
        headers = {"Authorization": "Bearer x", "Upgrade": "websocket", "Connection": "Upgrade"}
        async with session.get(url, headers=headers) as answer:
            return answer.status


@pytest.mark.parametrize("address", ipv6.EACH)
async def test_the_url_of_the_hub_can_be_dialled(address: str) -> None:
    async with hub().serve(address, 0) as url:
        assert urlsplit(url).hostname == address
        assert await asked(url.replace("ws:", "http:")) == 401


@pytest.mark.parametrize("address", ipv6.EACH)
async def test_servers_of_a_pod_listen_on_both_families(address: str) -> None:
    """A dual-stack Service leads to either address of the pod, and the kubelet probes the first."""
    host = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
    async with hub().serve("", 0) as url, Health(list).serve("", 0) as port:
        assert await asked(f"http://{host}:{urlsplit(url).port}{urlsplit(url).path}") == 401
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as answer:
            assert answer.status == 200
