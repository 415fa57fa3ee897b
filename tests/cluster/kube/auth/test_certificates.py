from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from gangctl.cluster.errors import Retryable, Terminal
from gangctl.cluster.kube.certificates import (
    AUTHORITY_LIFE,
    LABEL,
    MANAGER,
    CertificateBundle,
    CertificateRotator,
    rotate_bundle,
)
from gangctl.cluster.kube.client import Client
from tests.cluster.kube.auth.bundles import NAMES, fresh
from tests.cluster.kube.fakeapi import FakeApi, status
from tests.wait import until_async

SECRET = ("secrets", "gangctl-system", "gangctl-tls")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    server = FakeApi()
    async with server.serve() as client:
        server.client = client  # type: ignore[attr-defined]
        yield server


def rotator(api: FakeApi, *names: str) -> CertificateRotator:
    client: Client = api.client  # type: ignore[attr-defined]
    return CertificateRotator(client, "gangctl-system", "gangctl-tls", names or NAMES)


def stored_bundle(api: FakeApi) -> CertificateBundle:
    data = api.objects[SECRET]["data"]
    values = [base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
    return CertificateBundle(*values)


async def fill(api: FakeApi, bundle: CertificateBundle, labels: dict[str, str] | None = None) -> None:
    """Fill the Secret."""
    data = {
        "ca.crt": bundle.ca,
        "ca.key": bundle.ca_key,
        "tls.crt": bundle.chain,
        "tls.key": bundle.key,
        "note": b"mine",
    }
    encoded = {name: base64.b64encode(one).decode() for name, one in data.items() if one}
    metadata = {"name": SECRET[2], "namespace": SECRET[1], "labels": labels or {}}
    await api.put("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


async def test_the_first_replica_creates_the_secret_and_the_second_uses_it(api: FakeApi) -> None:
    first, second = rotator(api), rotator(api)
    await asyncio.gather(first.refresh(), second.refresh())
    assert first.ca == second.ca == stored_bundle(api).ca.decode()
    assert api.objects[SECRET]["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gangctl"}
    made = [method for method, _, _ in api.requests if method in {"PUT", "POST"}]
    assert "PUT" not in made, "the second replica has overwritten nothing"
    before = len(api.requests)
    await first.refresh()
    assert [method for method, _, _ in api.requests[before:]] == ["GET"], "nothing is due"


async def test_a_replica_that_does_not_lead_may_create_the_secret(api: FakeApi) -> None:
    def no() -> None:
        raise Retryable("this process doesn't lead")

    api.client.guard = no  # type: ignore[attr-defined]
    here = rotator(api)
    await here.refresh()
    assert here.ca


async def test_broken_certificates_in_gangctls_own_secret_are_replaced_and_other_keys_stay(api: FakeApi) -> None:
    bundle = fresh()
    await fill(api, replace(bundle, ca_key=b"garbage", key=b"rubbish"), {"app.kubernetes.io/managed-by": "gangctl"})
    here = rotator(api)
    await here.refresh()
    assert stored_bundle(api).ca.endswith(bundle.ca), "older pods trust it"
    assert here.ca == stored_bundle(api).ca.decode()
    assert base64.b64decode(api.objects[SECRET]["data"]["note"]) == b"mine"


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        (replace(fresh(), key=b"rubbish"), "tls.crt and tls.key can't be used together"),
        (replace(fresh(), ca=b""), "ca.crt has no certificate that sidecars could trust"),
        (replace(fresh(), ca=fresh().ca), "sidecars don't accept tls.crt"),
        (fresh(timedelta(days=100)), "sidecars don't accept tls.crt"),
        (rotate_bundle(CertificateBundle(), ("another.name",), datetime.now(UTC))[0], "sidecars don't accept tls.crt"),
    ],
)
async def test_an_unusable_secret_of_a_user_is_reported_and_never_written(
    api: FakeApi, bundle: CertificateBundle, words: str
) -> None:
    await fill(api, bundle)
    before = api.objects[SECRET]["metadata"]["resourceVersion"]
    here = rotator(api)
    with pytest.raises(Terminal, match="Secret gangctl-system/gangctl-tls can't be used") as raised:
        await here.refresh()
    assert words in str(raised.value)
    assert "delete it and gangctl creates its own" in str(raised.value)
    assert here.ca == ""
    assert api.objects[SECRET]["metadata"]["resourceVersion"] == before


async def test_a_usable_secret_of_a_user_is_used_without_the_authoritys_key(api: FakeApi) -> None:
    bundle = replace(fresh(), ca_key=b"")
    await fill(api, bundle)
    here = rotator(api)
    await here.refresh()
    assert here.ca == bundle.ca.decode()
    await fill(api, replace(bundle, key=b"rubbish"))
    with pytest.raises(Terminal):
        await here.refresh()
    assert here.ca == bundle.ca.decode(), "the last good certificate is still served"
    better = replace(fresh(), ca_key=b"")
    await fill(api, better)
    await here.refresh()
    assert here.ca == better.ca.decode()


async def test_a_secret_that_a_user_promised_is_awaited_followed_and_never_written(api: FakeApi) -> None:
    client: Client = api.client  # type: ignore[attr-defined]
    here = CertificateRotator(client, "gangctl-system", "gangctl-tls", NAMES, is_provided=True)
    with pytest.raises(Terminal, match=r"Secret gangctl-system/gangctl-tls doesn't exist\. Create it with ca\.crt"):
        await here.refresh()
    await api.put("secrets", {"metadata": {"name": SECRET[2], "namespace": SECRET[1]}, "data": {}})
    with pytest.raises(Terminal, match=r"can't be used: tls\.crt and tls\.key can't be used together"):
        await here.refresh()
    first, second = (replace(fresh(), ca_key=b"") for _ in range(2))
    await fill(api, first, {"app.kubernetes.io/managed-by": "gangctl"})  # cert-manager sets the labels that it is told
    await here.refresh()
    shown = await served_by(here)
    await fill(api, second)
    await here.refresh()
    assert here.ca == second.ca.decode()
    assert await served_by(here) != shown, "the listener shows the new certificate"
    await api.remove(*SECRET)
    with pytest.raises(Terminal):
        await here.refresh()
    assert here.ca == second.ca.decode(), "the last good certificate is still served"
    assert {method for method, _, _ in api.requests} == {"GET"}


async def test_an_empty_secret_is_filled(api: FakeApi) -> None:
    await api.put("secrets", {"metadata": {"name": SECRET[2], "namespace": SECRET[1]}})
    here = rotator(api)
    await here.refresh()
    assert here.ca == stored_bundle(api).ca.decode()


async def test_the_served_certificate_stays_while_the_api_server_is_away(api: FakeApi) -> None:
    async def away(_request: web.Request) -> web.StreamResponse:
        return status(503, "ServiceUnavailable", "etcd is away")

    here = rotator(api)
    api.faults.append(away)
    with pytest.raises(Retryable, match="etcd is away"):
        await here.refresh()
    assert here.ca == ""
    api.faults.clear()
    await here.refresh()
    shown = here.ca
    api.faults.append(away)
    with pytest.raises(Retryable):
        await here.refresh()
    assert here.ca == shown


async def test_the_listener_serves_a_renewed_certificate(api: FakeApi) -> None:
    """Another replica has renewed the certificate."""
    here = rotator(api)
    await here.refresh()
    old = await served_by(here)
    await rotator(api, *NAMES, "another.name").refresh()
    await here.refresh()  # which has other names, and so accepts it back: a renewal either way
    assert await served_by(here) != old


async def test_no_handshake_fails_while_the_authority_and_its_certificates_are_replaced(api: FakeApi) -> None:
    """Clients connect all the time and know the first authority only, as sidecars until the kubelet tells them."""
    here, due = rotator(api), fresh(AUTHORITY_LIFE * 0.667)
    old, why = rotate_bundle(due, NAMES, datetime.now(UTC) - AUTHORITY_LIFE * 0.001)
    assert (old.ca, why) == (due.ca, "the serving certificate is due for renewal")
    await fill(api, old)  # Without gangctl's label, so it is served as it is.
    await here.refresh()
    certificates: list[set[bytes]] = [set() for _ in range(20)]

    async def connects(port: int, seen: set[bytes]) -> None:
        while True:
            seen.add(await shown_at(port, old.ca.decode()))

    async def all_have_seen(number: int) -> None:
        await until_async(f"each client has seen {number}", lambda: min(map(len, certificates)) >= number)

    async with serving(here) as port, asyncio.TaskGroup() as tasks:
        clients = [tasks.create_task(connects(port, seen)) for seen in certificates]
        await all_have_seen(1)
        await fill(api, old, {LABEL: MANAGER})
        await here.refresh()
        assert here.ca != old.ca.decode()
        await all_have_seen(2)
        for number in (3, 4, 5):
            await rotator(api, *NAMES, "another.name").refresh()
            await here.refresh()
            await all_have_seen(number)
        for one in clients:
            one.cancel()


async def served_by(here: CertificateRotator) -> bytes:
    """The certificate that a client gets."""
    async with serving(here) as port:
        return await shown_at(port, here.ca)


@asynccontextmanager
async def serving(here: CertificateRotator) -> AsyncIterator[int]:
    """A server of these certificates, which has nothing to say; yields its port."""

    async def nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=here.context) as server:
        yield server.sockets[0].getsockname()[1]


async def shown_at(port: int, ca: str) -> bytes:
    """The certificate that a client gets which trusts these authorities."""
    trust = ssl.create_default_context(cadata=ca)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=NAMES[0])
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return shown
