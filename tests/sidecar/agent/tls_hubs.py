"""Controllers over TLS for a sidecar: an authority, a hub with its certificate, and a sidecar as a pod starts it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gangsidecar import wire
from tests.sidecar.agent.sidecars import TOKEN, Sidecar, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

NAME = "localhost"
"""The host of the URL, and the name in the certificate."""


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


_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
"""Python 3.13 and newer trust no authority without it."""


def authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _begun("ca", None, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_SIGNS, critical=True)
    )
    return Authority(key, made.sign(key, hashes.SHA256()))


@dataclass
class Hub:
    """One controller: it takes connections, or answers with this status and these headers."""

    url: str
    asked: int = 0
    refusal: tuple[int, Mapping[str, str]] | None = None
    stop: Callable[[], Awaitable[None]] = field(init=False)
    sockets: int = 0
    reports: int = 0
    tokens: frozenset[str] = frozenset()


def replace(file: Path, text: str) -> None:
    """Replace a file in one step, as the kubelet does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@asynccontextmanager
async def hub(
    context: ssl.SSLContext | None, host: str = NAME, port: int = 0, address: str = "127.0.0.1"
) -> AsyncIterator[Hub]:
    """A controller that listens at ``address``; ``host``: in its URL."""
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
    await web.TCPSite(runner, address, port, ssl_context=context).start()
    here.stop = runner.cleanup
    here.url = f"{'ws' if context is None else 'wss'}://{host}:{runner.addresses[0][1]}/v1/connect"
    try:
        yield here
    finally:
        await runner.cleanup()


@asynccontextmanager
async def sidecar(directory: Path, url: str, ca: str = "", address: str = "") -> AsyncIterator[Sidecar]:
    """A sidecar as a pod starts it: with everything in its environment, or in files that it names."""
    given = {"GANG_DIR": str(directory)}
    for variable, name, text in (
        ("GANG_CONTROLLER_FILE", "url", url),
        ("GANG_TOKEN_FILE", "token", TOKEN),
        *([("GANG_CA_FILE", "ca.crt", ca)] if url.startswith("wss:") else []),
        ("GANG_ADDRESS_FILE", "address", address),
    ):
        (directory / name).write_text(text)
        given[variable] = str(directory / name)
    environment = {**os.environ, **given}
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
