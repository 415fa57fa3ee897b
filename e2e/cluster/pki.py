"""Keys, certificates and kubeconfigs of a cluster that exists for hours."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

LIFETIME = dt.timedelta(days=30)


@dataclass(frozen=True)
class PKI:
    """The folder with the cluster's CA and the certificates that it signed."""

    folder: Path

    def prepare(self) -> None:
        """Create the CA, and the key that signs service account tokens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "ca.crt").exists():
            return
        signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._write("sa", signing)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gangctl-e2e")])
        certificate = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._write("ca", key, certificate.sign(key, hashes.SHA256()))

    def issue(self, name: str, common: str, organisation: str = "", names: Sequence[str] = ()) -> None:
        """Issue a certificate for clients and servers, signed by the CA: ``name``.crt and ``name``.key."""
        if (self.folder / f"{name}.crt").exists():
            return
        authority = x509.load_pem_x509_certificate(self.path("ca.crt").read_bytes())
        signer = serialization.load_pem_private_key(self.path("ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
        if organisation:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
        alternatives = [_alternative(one) for one in names or [common.replace(":", "-")]]
        certificate = _builder(x509.Name(parts), authority.subject, key.public_key()).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        self._write(name, key, certificate.sign(signer, hashes.SHA256()))

    def kubeconfig(self, name: str, server: str) -> str:
        """A kubeconfig that contains that certificate, its key and the CA."""

        def data(file: str) -> str:
            return base64.b64encode(self.path(file).read_bytes()).decode()

        user = {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}
        cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "gangctl-e2e",
            "clusters": [{"name": "gangctl-e2e", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "gangctl-e2e", "context": {"cluster": "gangctl-e2e", "user": name}}],
        }
        return json.dumps(config, indent=1)

    def path(self, file: str) -> Path:
        """The path of a file in the folder."""
        return self.folder / file

    def _write(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
        certificate: x509.Certificate | None = None,
    ) -> None:
        encoded = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        path = self.path(f"{name}.key")
        path.touch(0o600)
        path.write_bytes(encoded)
        if certificate is not None:
            self.path(f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + LIFETIME)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
