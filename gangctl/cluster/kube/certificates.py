"""The hub's certificates: an authority and a serving certificate in a Secret, and the TLS context that follows it.

The rule: the authority that sidecars trust outlives the certificates that they are shown. A serving certificate is
valid for 90 days and is renewed after two thirds of that time, or when its names change. The authority is valid for ten
years, because a pod carries its certificate for its whole life. After two thirds of that time a new authority takes
over; the old one cross-signs it, so that older pods trust what they are shown.

gangctl renews the certificates of its own Secret. It uses a Secret that a user (or cert-manager) fills as it is,
follows its changes, and must never write it. Sidecars must never be shown a certificate that they would refuse. Any
replica may write: of two writes at once, one succeeds, and the other replica uses what is stored.
"""

import asyncio
import base64
import ipaddress
import logging
import os
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube.client import Client, NotFound

log = logging.getLogger(__name__)

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=90)
CLOCK_SKEW: Final = timedelta(minutes=5)
"""A certificate is valid from this time before its creation on: other clocks may be behind."""
MAX_AUTHORITIES: Final = 4
"""Maximum number of authorities in the bundle, the newest first."""


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """The contents of the Secret, all PEM; empty = not there."""

    ca: bytes = b""
    """The authorities that sidecars trust. ``ca_key`` belongs to the first one."""
    ca_key: bytes = b""
    chain: bytes = b""
    """What sidecars are shown: the serving certificate, then the cross-signed certificates of older authorities."""
    key: bytes = b""


def rotate_bundle(bundle: CertificateBundle, names: Sequence[str], now: datetime) -> tuple[CertificateBundle, str]:
    """Renew what is due; returns the bundle to store, and why it differs (empty: nothing is due)."""
    authority = _authority(bundle, now)
    trusted = [one for one in _certificates(bundle.ca) if now < one.not_valid_after_utc]
    cross_signed: list[x509.Certificate] = []
    if authority is None:
        why = (
            "there was no authority yet" if bundle == CertificateBundle() else "the authority was broken or had expired"
        )
        authority = _new_authority(now)
    elif _is_due(authority.certificate, now):
        why = "the authority is due for renewal"
        older, authority = authority, _new_authority(now)
        cross_signed = [_cross_signed(authority, older)]
    else:
        why = _why_due(bundle, authority, names, now)
        if not why:
            return bundle, ""
        # The certificates that cross-sign this authority stay in the chain.
        cross_signed = [one for one in _certificates(bundle.chain)[1:] if now < one.not_valid_after_utc]
    authorities = [authority.certificate, *(one for one in trusted if one != authority.certificate)]
    made = replace(bundle, ca=_pem(*authorities[:MAX_AUTHORITIES]), ca_key=_key_pem(authority.key))
    key = ec.generate_private_key(ec.SECP256R1())
    serving = _serving(authority, key, names, now)
    return replace(made, chain=_pem(serving, *cross_signed), key=_key_pem(key)), why


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _authority(bundle: CertificateBundle, now: datetime) -> _Authority | None:
    """The authority, if it can sign now."""
    key = _key(bundle.ca_key)
    certificate = next(iter(_certificates(bundle.ca)), None)
    if key is None or certificate is None or certificate.public_key() != key.public_key():
        return None
    return _Authority(certificate, key) if now < certificate.not_valid_after_utc else None


def _why_due(bundle: CertificateBundle, authority: _Authority, names: Sequence[str], now: datetime) -> str:
    """Return why a new serving certificate is needed; empty if it isn't."""
    serving, key = next(iter(_certificates(bundle.chain)), None), _key(bundle.key)
    if serving is None or key is None or serving.public_key() != key.public_key():
        return "the serving certificate was missing or broken"
    try:
        serving.verify_directly_issued_by(authority.certificate)
        said = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return "the serving certificate was signed by another authority"
    if set(said) != {_alternative(name) for name in names}:
        return "the serving certificate was for other names"
    return "the serving certificate is due for renewal" if _is_due(serving, now) else ""


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begins + (ends - begins) * 2 / 3 or now < begins


def _new_authority(now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each authority has a name of its own: with two of the same name, a client might verify with the wrong one.
    subject = _name(f"gangctl {secrets.token_hex(4)}")
    builder = _builder(subject, subject, key, key, now, AUTHORITY_LIFE)
    return _Authority(_as_authority(builder).sign(key, hashes.SHA256()), key)


def _cross_signed(new: _Authority, old: _Authority) -> x509.Certificate:
    """The new authority's name and key, signed by the old authority."""
    begins, ends = new.certificate.not_valid_before_utc, old.certificate.not_valid_after_utc
    life = ends - begins - CLOCK_SKEW
    builder = _builder(new.certificate.subject, old.certificate.subject, new.key, old.key, begins + CLOCK_SKEW, life)
    return _as_authority(builder).sign(old.key, hashes.SHA256())


def _serving(
    authority: _Authority, key: ec.EllipticCurvePrivateKey, names: Sequence[str], now: datetime
) -> x509.Certificate:
    # It must not outlive its authority. Clients check the alternative names; a common name is too short for some.
    life = min(SERVING_LIFE, authority.certificate.not_valid_after_utc - now)
    return (
        _builder(_name("gangctl hub"), authority.certificate.subject, key, authority.key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    """The common fields: OpenSSL's strict mode, which newer Pythons use, wants both key identifiers."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _as_authority(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).add_extension(
        _usage(signs=True), critical=True
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """``signs``: whether the key signs other certificates."""
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """The certificates of a PEM text; empty if it can't be read."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        found = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey) else None


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


REFRESH_SECONDS: Final = 60.0
"""Time between two checks whether a renewal is due, or the Secret has changed: as long as the kubelet takes to update a
mounted one."""
MAX_ATTEMPTS: Final = 5
"""Maximum number of writes that conflict with others in one refresh."""
LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "gangctl"
CA, CA_KEY, CHAIN, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class CertificateRotator:
    """Rotates the certificates in one Secret."""

    def __init__(
        self, client: Client, namespace: str, name: str, names: Sequence[str], *, is_provided: bool = False
    ) -> None:
        """``name``: of the Secret; ``names``: host names and addresses of the hub. Sidecars check the first one.

        ``is_provided``: whether a user promises to fill the Secret.
        """
        self.context = _context()
        """For the listener. A connection after a renewal gets the new certificate."""
        self.ca = ""
        """The authorities that sidecars trust, PEM; empty until there is a serving certificate."""
        self._client = client
        self._folder = f"/api/v1/namespaces/{namespace}/secrets"
        self._title = f"Secret {namespace}/{name}"
        self._namespace = namespace
        self._name = name
        self._names = tuple(names)
        self._is_provided = is_provided
        self._served: CertificateBundle | None = None

    async def refresh(self) -> None:
        """Read the Secret, create or renew what is missing or due, and serve with it.

        Raises:
            Retryable: the API server is away, or the writes of other processes conflict with this one's.
            Terminal: the Secret can't be read or written, or a user has filled it with unusable certificates.
        """
        for _ in range(MAX_ATTEMPTS):
            secret = await self._read()
            found = _parse(secret)
            if self._is_provided:
                if secret is None:
                    raise Terminal(
                        f"{self._title} doesn't exist. Create it with {CA}, {CHAIN} and {KEY}, for example by a "
                        f"Certificate of cert-manager with the DNS name {self._names[0]}"
                    )
                self._serve(found, "Correct it")
                return
            if not _is_managed(secret, found):
                self._serve(
                    found, f"Correct it, or delete it and gangctl creates its own. It lacks the label {LABEL}={MANAGER}"
                )
                return
            bundle, why = rotate_bundle(found, self._names, datetime.now(UTC))
            if not why:
                self._serve(bundle, "Delete it, and gangctl creates it again")
                return
            try:
                await self._write(secret, bundle)
            except Conflict:
                continue  # another replica was faster: use what it has stored
            log.info("%s was written because %s", self._title, why)
            self._serve(bundle, "Delete it, and gangctl creates it again")
            return
        raise Retryable(f"{self._title} could not be written: other processes change it all the time")

    async def run(self) -> NoReturn:
        """Refresh regularly until cancelled. The last good certificate is served meanwhile."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except ClusterError as error:
                log.warning("the hub's certificate can't be refreshed: %s", error)

    def _serve(self, bundle: CertificateBundle, remedy: str) -> None:
        if bundle == self._served:
            return
        problem = _handshake_problem(bundle, self._names[0])
        if problem:
            raise Terminal(f"{self._title} can't be used: {problem}. {remedy}")
        _load(self.context, bundle)
        if self.ca:
            log.info("%s has changed: new connections get its certificate", self._title)
        self._served, self.ca = bundle, bundle.ca.decode()

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(f"{self._folder}/{self._name}")
        except NotFound:
            return None

    async def _write(self, secret: dict[str, Any] | None, bundle: CertificateBundle) -> None:
        stored = secret or {}
        metadata = {**(stored.get("metadata") or {}), "name": self._name, "namespace": self._namespace}
        metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: MANAGER}
        data = {CA: bundle.ca, CA_KEY: bundle.ca_key, CHAIN: bundle.chain, KEY: bundle.key}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            **stored,
            "metadata": metadata,
            "data": {
                **(stored.get("data") or {}),
                **{name: base64.b64encode(one).decode() for name, one in data.items()},
            },
        }
        method, path = ("POST", self._folder) if secret is None else ("PUT", f"{self._folder}/{self._name}")
        try:
            # A replica that doesn't lead needs the certificate as well, to redirect sidecars.
            await self._client.request(method, path, body=body, unguarded=True)
        except NotFound as error:
            if secret is None:  # the namespace doesn't exist
                raise
            raise Conflict(f"{self._title} was deleted meanwhile") from error


def _parse(secret: dict[str, Any] | None) -> CertificateBundle:
    data = (secret or {}).get("data") or {}
    ca, ca_key, chain, key = (base64.b64decode(data.get(name) or "") for name in (CA, CA_KEY, CHAIN, KEY))
    return CertificateBundle(ca, ca_key, chain, key)


def _is_managed(secret: dict[str, Any] | None, found: CertificateBundle) -> bool:
    """Return whether gangctl may write the Secret: it has gangctl's label, or is empty."""
    labels = ((secret or {}).get("metadata") or {}).get("labels") or {}
    return found == CertificateBundle() or labels.get(LABEL) == MANAGER


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # sidecars don't resume sessions
    return context


def _load(context: ssl.SSLContext, bundle: CertificateBundle) -> None:
    """Load certificate and key through a file in memory: the ssl module reads them from files only."""
    number = os.memfd_create("gangctl-tls")
    try:
        os.write(number, bundle.chain.rstrip() + b"\n" + bundle.key)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


def _handshake_problem(bundle: CertificateBundle, name: str) -> str:
    """Say why a sidecar would refuse these certificates, found by a handshake in memory; empty if it accepts them."""
    server_context, client_context = _context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        _load(server_context, bundle)
    except (ssl.SSLError, OSError, ValueError) as error:
        return f"{CHAIN} and {KEY} can't be used together ({error})"
    try:
        client_context.load_verify_locations(cadata=bundle.ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        return f"{CA} has no certificate that sidecars could trust ({error})"
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            return f"sidecars don't accept {CHAIN} for {name} ({error})"
    return ""
