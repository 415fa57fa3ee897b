"""The Secret with the hub's certificates, and the TLS context that follows it.

The rule: gangctl renews the certificates of its own Secret. It uses a Secret that a user (or cert-manager) fills as it
is, follows its changes, and must never write it. Sidecars must never be shown a certificate that they would refuse. Any
replica may write: of two writes at once, one succeeds, and the other replica uses what is stored.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube.auth.authority import CertificateBundle, rotate
from gangctl.cluster.kube.client import Client, NotFound

log = logging.getLogger(__name__)

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
            bundle, why = rotate(found, self._names, datetime.now(UTC))
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
            answer = await self._client.request("GET", f"{self._folder}/{self._name}")
        except NotFound:
            return None
        try:
            return dict(json.loads(answer))
        except ValueError as error:
            raise Retryable(f"the API server's answer for {self._title} can't be read: {error}") from error

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
            await self._client.request(method, path, body=json.dumps(body).encode(), unguarded=True)
        except NotFound as error:
            if secret is None:  # the namespace doesn't exist
                raise
            raise Conflict(f"{self._title} was deleted meanwhile") from error


def _parse(secret: dict[str, Any] | None) -> CertificateBundle:
    data = (secret or {}).get("data") or {}
    ca, ca_key, chain, key = (base64.b64decode(data.get(name) or "") for name in (CA, CA_KEY, CHAIN, KEY))
    return CertificateBundle(ca, ca_key, chain, key)


def _is_managed(secret: dict[str, Any] | None, found: CertificateBundle) -> bool:
    """Whether gangctl may write the Secret: it has gangctl's label, or is empty."""
    labels = ((secret or {}).get("metadata") or {}).get("labels") or {}
    return found == CertificateBundle() or labels.get(LABEL) == MANAGER


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # sidecars don't resume sessions
    return context


def _load(context: ssl.SSLContext, bundle: CertificateBundle) -> None:
    """Load certificate and key through a file in memory: the ssl module reads them from files only.

    Raises:
        ssl.SSLError: they can't be used.
    """
    number = os.memfd_create("gangctl-tls")
    try:
        os.write(number, bundle.chain.rstrip() + b"\n" + bundle.key)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


def _handshake_problem(bundle: CertificateBundle, name: str) -> str:
    """Why a sidecar would refuse these certificates, found by a handshake in memory; empty if it accepts them."""
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
