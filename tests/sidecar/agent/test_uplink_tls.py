"""The sidecar over TLS: which certificates and names it trusts, and how it finds the leader."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import ssl
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gangsidecar import wire
from tests.sidecar.agent.sidecars import REPORT, TOKEN, Sidecar, supervisor, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

NAME = "gangctl.gangctl-system.svc"


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def context(self, folder: Path, *names: x509.GeneralName) -> ssl.SSLContext:
        """A server that has a certificate for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        # The key, and not only the name, identifies the signer: two authorities may have one name.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        begun = _begun("serving", self.certificate.subject, key).add_extension(signer, critical=False)
        made = begun.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair = folder / "pair.pem"
        pair.write_bytes(
            made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair)
        return context


def _begun(name: str, issuer: x509.Name | None, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
    )


def authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _begun("ca", None, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(key, made.sign(key, hashes.SHA256()))


@dataclass
class Hub:
    """One controller: it takes connections, or answers with this status and these headers."""

    url: str
    asked: int = 0
    refusal: tuple[int, Mapping[str, str]] | None = None
    sockets: int = 0
    reports: int = 0
    tokens: frozenset[str] = frozenset()


@asynccontextmanager
async def hub(context: ssl.SSLContext | None, host: str = "localhost") -> AsyncIterator[Hub]:
    here = Hub("")

    async def serve(request: web.Request) -> web.StreamResponse:
        here.asked += 1
        here.tokens |= {request.headers["Authorization"]}
        if here.refusal is not None:
            return web.Response(status=here.refusal[0], headers=here.refusal[1], text="this one says no")
        socket = web.WebSocketResponse(timeout=0.5)
        await socket.prepare(request)
        here.sockets += 1
        async for frame in socket:
            here.reports += isinstance(wire.decode(frame.data), wire.Report)
        return socket

    application = web.Application()
    application.router.add_get("/v1/connect", serve)
    runner = web.AppRunner(application, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    here.url = f"{'ws' if context is None else 'wss'}://{host}:{runner.addresses[0][1]}/v1/connect"
    try:
        yield here
    finally:
        await runner.cleanup()


@asynccontextmanager
async def sidecar(directory: Path, url: str, ca: str = "", name: str = NAME) -> AsyncIterator[Sidecar]:
    """A sidecar as a pod starts it: with everything in its environment."""
    (directory / "token").write_text(TOKEN)
    given = {"GANG_DIR": str(directory), "GANG_TOKEN_FILE": str(directory / "token"), "GANG_CONTROLLER": url}
    environment = {**os.environ, **given, "GANG_CA": ca, "GANG_SERVER_NAME": name, "SSL_CERT_FILE": "/dev/null"}
    with (directory / "log").open("ab") as log:
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gangsidecar.agent", env=environment, stderr=log
        )
    try:
        yield Sidecar(directory, started)
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def connected(here: Hub, count: int = 1) -> None:
    await until(lambda: here.sockets >= count)


async def said(here: Sidecar, text: str) -> None:
    await until(lambda: text in here.log())


async def test_the_sidecar_checks_the_configured_name_and_not_the_address(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(NAME))
    async with hub(context, "127.0.0.1") as above, sidecar(directory, above.url, ca.pem) as here:
        await connected(above)
        async with supervisor(directory, REPORT):
            await until(lambda: above.reports)
        assert above.tokens == {f"Bearer {TOKEN}"}
        assert here.resident_kilobytes() < 39_000


@pytest.mark.parametrize("wrong", ["authority", "name", "system"])
async def test_a_controller_that_isnt_ours_never_sees_the_token(directory: Path, wrong: str) -> None:
    ca = authority()
    trusted = {"authority": authority().pem, "name": ca.pem, "system": ""}[wrong]
    name = x509.DNSName("another.svc" if wrong == "name" else NAME)
    async with hub(ca.context(directory, name)) as above, sidecar(directory, above.url, trusted) as here:
        await said(here, "there is no connection to the controller")
        assert "certificate" in here.log().lower()
        assert above.asked == 0


async def test_the_sidecar_trusts_several_certificates_during_a_rotation(directory: Path) -> None:
    old, new = authority(), authority()
    context = new.context(directory, x509.DNSName(NAME))
    async with hub(context) as above, sidecar(directory, above.url, old.pem + new.pem):
        await connected(above)


async def test_the_sidecar_dials_a_standbys_leader_at_once_by_the_same_name(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(NAME))
    async with hub(context) as standby, hub(context, "127.0.0.1") as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url, ca.pem):
            await connected(leader)
            assert (standby.asked, leader.asked) == (1, 1)


async def test_a_leader_with_another_name_in_its_certificate_never_sees_the_token(directory: Path) -> None:
    ca = authority()
    other = directory / "other"
    other.mkdir()
    impostor = ca.context(other, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    async with hub(ca.context(directory, x509.DNSName(NAME))) as standby, hub(impostor, "127.0.0.1") as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url, ca.pem):
            await until(lambda: standby.asked >= 3)
            assert leader.asked == 0


async def test_the_sidecar_returns_to_the_configured_address_when_the_leader_fails(directory: Path) -> None:
    ca = authority()
    async with hub(ca.context(directory, x509.DNSName(NAME))) as standby:
        standby.refusal = 503, {"Gang-Leader": "wss://127.0.0.1:9/v1/connect"}
        async with sidecar(directory, standby.url, ca.pem):
            await until(lambda: standby.asked >= 2)
            standby.refusal = None
            await connected(standby)


async def test_two_standbys_that_name_each_other_are_dialled_no_faster(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(NAME))
    async with hub(context) as one, hub(context) as other:
        one.refusal = 503, {"Gang-Leader": other.url}
        other.refusal = 503, {"Gang-Leader": one.url}
        async with sidecar(directory, one.url, ca.pem) as here:
            await until(lambda: one.asked >= 4)
            assert other.asked in {one.asked - 1, one.asked}
            assert "answered 503: this one says no" in here.log()
            other.refusal = None
            await connected(other)


@pytest.mark.parametrize(
    "leader", ["ws://127.0.0.1:{port}/v1/connect", "https://127.0.0.1:{port}/", "wss://[", "nonsense"]
)
async def test_a_leader_without_tls_is_not_dialled(directory: Path, leader: str) -> None:
    ca = authority()
    async with hub(ca.context(directory, x509.DNSName(NAME))) as standby, hub(None) as plain:
        port = plain.url.rpartition(":")[2].partition("/")[0]
        standby.refusal = 503, {"Gang-Leader": leader.format(port=port)}
        async with sidecar(directory, standby.url, ca.pem) as here:
            await until(lambda: standby.asked >= 2)
            await said(here, "there is no connection to the controller")
            assert plain.asked == 0
            standby.refusal = None
            await connected(standby)


async def test_a_sidecar_without_tls_dials_a_leader_without_tls(directory: Path) -> None:
    async with hub(None) as standby, hub(None) as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url):
            await connected(leader)


@pytest.mark.parametrize("status", [403, 500])
async def test_only_503_names_a_leader(directory: Path, status: int) -> None:
    async with hub(None) as first, hub(None) as second:
        first.refusal = status, {"Gang-Leader": second.url}
        async with sidecar(directory, first.url) as here:
            await said(here, f"answered {status}")
            await until(lambda: first.asked >= 2)
            assert second.asked == 0


async def test_an_invalid_certificate_is_an_error_at_start(directory: Path) -> None:
    for text in ("nonsense", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "é"):
        async with sidecar(directory, "wss://127.0.0.1:9/", text) as here:
            assert await here.process.wait() == 2
            assert "GANG_CA) holds no certificates" in here.log()


async def test_every_uid_may_connect_to_the_sidecars_sockets(directory: Path) -> None:
    """The worker's container may have another uid; the second sidecar finds the sockets of the first."""
    directory.chmod(0o777)  # noqa: ASYNC240 - a test has time
    for round_ in (1, 2):
        async with sidecar(directory, "ws://127.0.0.1:9/") as here:
            await until(lambda log=here.log, count=round_: log().count("the sidecar listens") == count)  # type: ignore[misc]
            for name in ("supervisor.sock", "gang.sock"):
                assert (directory / name).stat().st_mode & 0o777 == 0o666
            async with supervisor(directory, REPORT):
                pass
