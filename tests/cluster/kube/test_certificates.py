from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gangctl.cluster.errors import Retryable, Terminal
from gangctl.cluster.kube.auth.authority import AUTHORITY_LIFE, SERVING_LIFE, CertificateBundle, rotate
from gangctl.cluster.kube.auth.certificates import CertificateRotator
from gangctl.cluster.kube.client import Client
from tests.cluster.kube.fakeapi import FakeApi, status

NAMES = ("gangctl.gangctl-system.svc", "10.0.0.7")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
FIRST, _ = rotate(CertificateBundle(), NAMES, NOW)
SECRET = ("secrets", "gangctl-system", "gangctl-tls")


def certificates(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def takes(kept: CertificateBundle, trusted: bytes, tmp_path: Any, name: str = NAMES[0]) -> bool:
    """Whether who trusts these authorities takes the serving certificate as that of ``name``, in the strictest mode."""
    pair = tmp_path / "pair.pem"
    pair.write_bytes(kept.chain + kept.key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(pair)
    client_context = ssl.create_default_context(cadata=trusted.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return True


def fresh(life: timedelta = timedelta()) -> CertificateBundle:
    """Made so long ago, on the clock of this machine: a handshake has no other."""
    return rotate(CertificateBundle(), NAMES, datetime.now(UTC) - life)[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_sidecar_takes_the_first_certificate_for_each_of_its_names_in_strict_mode(name: str, tmp_path: Any) -> None:
    kept = fresh()
    assert takes(kept, kept.ca, tmp_path, name)
    assert not takes(kept, kept.ca, tmp_path, "gangctl.somewhere-else.svc")
    assert not takes(kept, fresh().ca, tmp_path, name), "another installation's authority"


def test_nothing_is_due_until_two_thirds_of_a_serving_certificates_life() -> None:
    assert rotate(FIRST, NAMES, NOW) == (FIRST, "")
    assert rotate(FIRST, NAMES, NOW + SERVING_LIFE * 0.66) == (FIRST, "")
    later, why = rotate(FIRST, NAMES, NOW + SERVING_LIFE * 0.67)
    assert why == "the serving certificate comes to its end"
    assert (later.ca, later.ca_key) == (FIRST.ca, FIRST.ca_key)
    assert later.key != FIRST.key


def test_other_names_need_another_serving_certificate() -> None:
    later, why = rotate(FIRST, ("gangctl.elsewhere.svc",), NOW)
    assert why == "the serving certificate was for other names"
    assert later.ca == FIRST.ca


def test_an_authority_hands_over_at_two_thirds_and_pods_of_before_take_what_they_are_shown(tmp_path: Any) -> None:
    old = fresh(AUTHORITY_LIFE * 0.7)
    new, why = rotate(old, NAMES, datetime.now(UTC))
    assert why == "the authority comes to its end"
    assert new.ca.endswith(old.ca), "new pods trust both"
    assert takes(new, old.ca, tmp_path)
    assert takes(new, new.ca, tmp_path)
    newest = certificates(new.ca)[0].public_bytes(serialization.Encoding.PEM)
    assert takes(new, newest, tmp_path)
    again, why = rotate(new, ("gangctl.gangctl-system.svc",), datetime.now(UTC))
    assert why == "the serving certificate was for other names"
    assert takes(again, old.ca, tmp_path), "after the next renewal as well"


def test_an_expired_authority_is_replaced_and_no_longer_trusted() -> None:
    new, why = rotate(FIRST, NAMES, NOW + AUTHORITY_LIFE + timedelta(days=1))
    assert why == "the authority was broken or had expired"
    assert len(certificates(new.ca)) == 1
    assert new.ca != FIRST.ca


@pytest.mark.parametrize(
    "broken",
    [
        replace(FIRST, ca_key=b"garbage"),
        replace(FIRST, ca_key=b""),
        replace(FIRST, ca_key=FIRST.key),
    ],
)
def test_an_authority_without_its_key_is_replaced_and_stays_trusted(broken: CertificateBundle) -> None:
    new, why = rotate(broken, NAMES, NOW)
    assert why == "the authority was broken or had expired"
    assert new.ca.endswith(FIRST.ca)
    assert rotate(new, NAMES, NOW) == (new, "")


@pytest.mark.parametrize(
    "broken",
    [
        replace(FIRST, chain=b""),
        replace(FIRST, chain=b"garbage"),
        replace(FIRST, key=b"garbage"),
        replace(FIRST, key=FIRST.ca_key),
        replace(FIRST, chain=rotate(CertificateBundle(), NAMES, NOW)[0].chain),
        replace(FIRST, chain=FIRST.ca, key=FIRST.ca_key),
    ],
)
def test_a_broken_serving_certificate_is_replaced_under_the_same_authority(broken: CertificateBundle) -> None:
    new, why = rotate(broken, NAMES, NOW)
    assert why.startswith("the serving certificate was")
    assert (new.ca, new.ca_key) == (FIRST.ca, FIRST.ca_key)
    assert rotate(new, NAMES, NOW) == (new, "")


def test_the_bundle_doesnt_grow_without_bound() -> None:
    kept = FIRST
    for _ in range(10):
        kept, _ = rotate(replace(kept, ca_key=b""), NAMES, NOW)
    assert len(certificates(kept.ca)) == 4


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    server = FakeApi()
    async with server.serve() as client:
        server.client = client  # type: ignore[attr-defined]
        yield server


def keeper(api: FakeApi, *names: str) -> CertificateRotator:
    client: Client = api.client  # type: ignore[attr-defined]
    return CertificateRotator(client, "gangctl-system", "gangctl-tls", names or NAMES)


def stored(api: FakeApi) -> CertificateBundle:
    data = api.objects[SECRET]["data"]
    values = [base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
    return CertificateBundle(*values)


async def bring(api: FakeApi, kept: CertificateBundle, labels: dict[str, str] | None = None) -> None:
    """Somebody fills the Secret."""
    data = {"ca.crt": kept.ca, "ca.key": kept.ca_key, "tls.crt": kept.chain, "tls.key": kept.key, "note": b"mine"}
    encoded = {name: base64.b64encode(one).decode() for name, one in data.items() if one}
    metadata = {"name": SECRET[2], "namespace": SECRET[1], "labels": labels or {}}
    await api.put("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


async def test_the_first_replica_makes_the_secret_and_the_second_takes_it(api: FakeApi) -> None:
    first, second = keeper(api), keeper(api)
    await asyncio.gather(first.refresh(), second.refresh())
    assert first.ca == second.ca == stored(api).ca.decode()
    assert api.objects[SECRET]["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gangctl"}
    made = [method for method, _, _ in api.requests if method in {"PUT", "POST"}]
    assert "PUT" not in made, "who came second has overwritten nothing"
    before = len(api.requests)
    await first.refresh()
    assert [method for method, _, _ in api.requests[before:]] == ["GET"], "nothing is due"


async def test_a_replica_that_doesnt_lead_may_make_it_as_well(api: FakeApi) -> None:
    def no() -> None:
        raise Retryable("this process doesn't lead")

    api.client.guard = no  # type: ignore[attr-defined]
    here = keeper(api)
    await here.refresh()
    assert here.ca


async def test_garbage_in_our_own_secret_is_replaced_and_everything_else_in_it_stays(api: FakeApi) -> None:
    kept = fresh()
    await bring(api, replace(kept, ca_key=b"garbage", key=b"rubbish"), {"app.kubernetes.io/managed-by": "gangctl"})
    here = keeper(api)
    await here.refresh()
    assert stored(api).ca.endswith(kept.ca), "pods of before trust it"
    assert here.ca == stored(api).ca.decode()
    assert base64.b64decode(api.objects[SECRET]["data"]["note"]) == b"mine"


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (replace(fresh(), key=b"rubbish"), "tls.crt and tls.key can't be used together"),
        (replace(fresh(), ca=b""), "ca.crt has no certificate that sidecars could trust"),
        (replace(fresh(), ca=fresh().ca), "sidecars don't take tls.crt"),
        (fresh(timedelta(days=100)), "sidecars don't take tls.crt"),
        (rotate(CertificateBundle(), ("another.name",), datetime.now(UTC))[0], "sidecars don't take tls.crt"),
    ],
)
async def test_a_secret_that_a_user_brought_is_never_written_and_what_is_wrong_with_it_is_said(
    api: FakeApi, kept: CertificateBundle, words: str
) -> None:
    await bring(api, kept)
    before = api.objects[SECRET]["metadata"]["resourceVersion"]
    here = keeper(api)
    with pytest.raises(Terminal, match="Secret gangctl-system/gangctl-tls is of no use") as raised:
        await here.refresh()
    assert words in str(raised.value)
    assert "delete it, and gangctl makes its own" in str(raised.value)
    assert here.ca == ""
    assert api.objects[SECRET]["metadata"]["resourceVersion"] == before


async def test_a_good_secret_that_a_user_brought_is_used_without_its_authoritys_key(api: FakeApi) -> None:
    kept = replace(fresh(), ca_key=b"")
    await bring(api, kept)
    here = keeper(api)
    await here.refresh()
    assert here.ca == kept.ca.decode()
    await bring(api, replace(kept, key=b"rubbish"))
    with pytest.raises(Terminal):
        await here.refresh()
    assert here.ca == kept.ca.decode(), "the last good one goes on to be shown"
    better = replace(fresh(), ca_key=b"")
    await bring(api, better)
    await here.refresh()
    assert here.ca == better.ca.decode()


async def test_an_empty_secret_is_filled_whoever_made_it(api: FakeApi) -> None:
    await api.put("secrets", {"metadata": {"name": SECRET[2], "namespace": SECRET[1]}})
    here = keeper(api)
    await here.refresh()
    assert here.ca == stored(api).ca.decode()


async def test_an_api_server_that_is_away_leaves_what_is_shown(api: FakeApi) -> None:
    async def away(_request: web.Request) -> web.StreamResponse:
        return status(503, "ServiceUnavailable", "etcd is away")

    here = keeper(api)
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


async def test_what_is_shown_follows_a_renewal_without_a_new_listener(api: FakeApi) -> None:
    """Another replica has renewed it: who connects from then on is shown the new one."""
    here = keeper(api)
    await here.refresh()
    old = await shown_by(here)
    await keeper(api, *NAMES, "another.name").refresh()
    await here.refresh()  # which has other names, and so takes it back: a renewal either way
    assert await shown_by(here) != old


async def shown_by(here: CertificateRotator) -> bytes:
    """The certificate that a client is shown."""

    async def nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=here.context)
    async with server:
        trust = ssl.create_default_context(cadata=here.ca)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=NAMES[0])
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return shown
