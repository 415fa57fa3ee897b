"""The hub's certificates: what they look like and when new ones are due. Pure, but for the randomness of keys.

The rule: what sidecars trust outlives what they are shown. A serving certificate lives for 90 days and is renewed at
two thirds of that, or when its names change. The authority lives for ten years, because pods carry its certificate for
as long as they live; its successor takes over at two thirds, vouched for by the old one, so that pods of before go on
to trust what they are shown.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=90)
SKEW: Final = timedelta(minutes=5)
"""Valid from so long ago on: other clocks are a little behind."""
TRUSTED: Final = 4
"""So many authorities are kept in the bundle, the newest first."""


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """What the Secret holds, all PEM; empty where there is nothing."""

    ca: bytes = b""
    """What sidecars trust. The first certificate is the authority that ``ca_key`` belongs to."""
    ca_key: bytes = b""
    chain: bytes = b""
    """What sidecars are shown: the serving certificate, and what leads from it to older authorities."""
    key: bytes = b""


def rotate(kept: CertificateBundle, names: Sequence[str], now: datetime) -> tuple[CertificateBundle, str]:
    """What is to be kept from now on, and why it is something else; the same and an empty text if nothing is due."""
    authority = _authority(kept, now)
    trusted = [one for one in _certificates(kept.ca) if now < one.not_valid_after_utc]
    vouchers: list[x509.Certificate] = []
    if authority is None:
        why = "there was no authority yet" if kept == CertificateBundle() else "the authority was broken or had expired"
        authority = _new_authority(now)
    elif _is_due(authority.certificate, now):
        why = "the authority comes to its end"
        older, authority = authority, _new_authority(now)
        vouchers = [_vouched_for(authority, older)]
    else:
        why = _why_due(kept, authority, names, now)
        if not why:
            return kept, ""
        # Who vouched for this authority still does.
        vouchers = [one for one in _certificates(kept.chain)[1:] if now < one.not_valid_after_utc]
    bundle = [authority.certificate, *(one for one in trusted if one != authority.certificate)]
    made = replace(kept, ca=_pem(*bundle[:TRUSTED]), ca_key=_key_pem(authority.key))
    key = ec.generate_private_key(ec.SECP256R1())
    serving = _serving(authority, key, names, now)
    return replace(made, chain=_pem(serving, *vouchers), key=_key_pem(key)), why


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _authority(kept: CertificateBundle, now: datetime) -> _Authority | None:
    """The authority that can sign now."""
    key = _key(kept.ca_key)
    certificate = next(iter(_certificates(kept.ca)), None)
    if key is None or certificate is None or certificate.public_key() != key.public_key():
        return None
    return _Authority(certificate, key) if now < certificate.not_valid_after_utc else None


def _why_due(kept: CertificateBundle, authority: _Authority, names: Sequence[str], now: datetime) -> str:
    """Why a new serving certificate is needed."""
    serving, key = next(iter(_certificates(kept.chain)), None), _key(kept.key)
    if serving is None or key is None or serving.public_key() != key.public_key():
        return "the serving certificate was missing or broken"
    try:
        serving.verify_directly_issued_by(authority.certificate)
        said = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return "the serving certificate was not this authority's"
    if set(said) != {_alternative(name) for name in names}:
        return "the serving certificate was for other names"
    return "the serving certificate comes to its end" if _is_due(serving, now) else ""


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begins + (ends - begins) * 2 / 3 or now < begins


def _new_authority(now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each has a name of its own: of two with one name, who verifies might try the wrong one.
    subject = _name(f"gangctl {secrets.token_hex(4)}")
    builder = _builder(subject, subject, key, key, now, AUTHORITY_LIFE)
    return _Authority(_authorizing(builder).sign(key, hashes.SHA256()), key)


def _vouched_for(new: _Authority, old: _Authority) -> x509.Certificate:
    """The new authority's name and key in a certificate of the old one."""
    begins, ends = new.certificate.not_valid_before_utc, old.certificate.not_valid_after_utc
    life = ends - begins - SKEW
    builder = _builder(new.certificate.subject, old.certificate.subject, new.key, old.key, begins + SKEW, life)
    return _authorizing(builder).sign(old.key, hashes.SHA256())


def _serving(
    authority: _Authority, key: ec.EllipticCurvePrivateKey, names: Sequence[str], now: datetime
) -> x509.Certificate:
    # It doesn't outlive its authority. What counts are the alternative names: a common name is too short for some.
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
    """What all have in common: OpenSSL's strict mode, which newer Pythons switch on, wants both identifiers."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _authorizing(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).add_extension(
        _usage(signs=True), critical=True
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """``signs``: other certificates."""
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


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    """Empty if it can't be read."""
    try:
        return x509.load_pem_x509_certificates(bundle)
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
