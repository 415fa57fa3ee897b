from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gangctl.cluster.kube.certificates import AUTHORITY_LIFE, SERVING_LIFE, CertificateBundle, rotate_bundle
from tests.cluster.kube.auth.bundles import NAMES, fresh

NOW = datetime(2026, 11, 21, tzinfo=UTC)
FIRST, _ = rotate_bundle(CertificateBundle(), NAMES, NOW)


def certificates(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def accepts(bundle: CertificateBundle, trusted: bytes, tmp_path: Any, name: str = NAMES[0]) -> bool:
    """Whether a client that trusts these authorities accepts the certificate for ``name``, in strict mode."""
    pair = tmp_path / "pair.pem"
    pair.write_bytes(bundle.chain + bundle.key)
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


@pytest.mark.parametrize("name", NAMES)
def test_a_sidecar_accepts_the_first_certificate_for_each_name_in_strict_mode(name: str, tmp_path: Any) -> None:
    bundle = fresh()
    assert accepts(bundle, bundle.ca, tmp_path, name)
    assert not accepts(bundle, bundle.ca, tmp_path, "gangctl.somewhere-else.svc")
    assert not accepts(bundle, fresh().ca, tmp_path, name), "another installation's authority isn't trusted"


def test_a_serving_certificate_is_renewed_after_two_thirds_of_its_life() -> None:
    assert rotate_bundle(FIRST, NAMES, NOW) == (FIRST, "")
    assert rotate_bundle(FIRST, NAMES, NOW + SERVING_LIFE * 0.66) == (FIRST, "")
    later, refusal_reason = rotate_bundle(FIRST, NAMES, NOW + SERVING_LIFE * 0.67)
    assert refusal_reason == "the serving certificate is due for renewal"
    assert (later.ca, later.ca_key) == (FIRST.ca, FIRST.ca_key)
    assert later.key != FIRST.key


def test_other_names_need_a_new_serving_certificate() -> None:
    later, refusal_reason = rotate_bundle(FIRST, ("gangctl.elsewhere.svc",), NOW)
    assert refusal_reason == "the serving certificate was for other names"
    assert later.ca == FIRST.ca


def test_pods_that_trust_the_old_authority_accept_the_new_one(tmp_path: Any) -> None:
    old = fresh(AUTHORITY_LIFE * 0.7)
    new, refusal_reason = rotate_bundle(old, NAMES, datetime.now(UTC))
    assert refusal_reason == "the authority is due for renewal"
    assert new.ca.endswith(old.ca), "new pods trust both"
    assert accepts(new, old.ca, tmp_path)
    assert accepts(new, new.ca, tmp_path)
    newest = certificates(new.ca)[0].public_bytes(serialization.Encoding.PEM)
    assert accepts(new, newest, tmp_path)
    again, refusal_reason = rotate_bundle(new, ("gangctl.gangctl-system.svc",), datetime.now(UTC))
    assert refusal_reason == "the serving certificate was for other names"
    assert accepts(again, old.ca, tmp_path), "the next renewal keeps this"


def test_an_expired_authority_is_replaced_and_no_longer_trusted() -> None:
    new, refusal_reason = rotate_bundle(FIRST, NAMES, NOW + AUTHORITY_LIFE + timedelta(days=1))
    assert refusal_reason == "the authority was broken or had expired"
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
    new, refusal_reason = rotate_bundle(broken, NAMES, NOW)
    assert refusal_reason == "the authority was broken or had expired"
    assert new.ca.endswith(FIRST.ca)
    assert rotate_bundle(new, NAMES, NOW) == (new, "")


@pytest.mark.parametrize(
    "broken",
    [
        replace(FIRST, chain=b""),
        replace(FIRST, chain=b"garbage"),
        replace(FIRST, key=b"garbage"),
        replace(FIRST, key=FIRST.ca_key),
        replace(FIRST, chain=rotate_bundle(CertificateBundle(), NAMES, NOW)[0].chain),
        replace(FIRST, chain=FIRST.ca, key=FIRST.ca_key),
    ],
)
def test_a_broken_serving_certificate_is_replaced_by_the_same_authority(broken: CertificateBundle) -> None:
    new, refusal_reason = rotate_bundle(broken, NAMES, NOW)
    assert refusal_reason.startswith("the serving certificate was")
    assert (new.ca, new.ca_key) == (FIRST.ca, FIRST.ca_key)
    assert rotate_bundle(new, NAMES, NOW) == (new, "")


def test_the_bundle_of_authorities_is_bounded() -> None:
    bundle = FIRST
    for _ in range(10):
        bundle, _ = rotate_bundle(replace(bundle, ca_key=b""), NAMES, NOW)
    assert len(certificates(bundle.ca)) == 4
