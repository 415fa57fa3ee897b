"""The Secret with the hub's certificates, and the TLS context that follows it.

The rule: a Secret that is ours is kept in order, one that somebody else has filled is used as it is and never written,
and nothing is shown to sidecars that they would not take. Any replica may write: of two at a time one wins, and the
other one takes what the winner has stored.
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

LOOK_SECONDS: Final = 600.0
"""How often it is looked whether something is due, or somebody else has changed it."""
TRIES: Final = 5
"""Writes that others are faster than, before it is tried again later."""
LABEL: Final = "app.kubernetes.io/managed-by"
OURS: Final = "gangctl"
CA, CA_KEY, CHAIN, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class CertificateRotator:
    """One Secret."""

    def __init__(self, client: Client, namespace: str, name: str, names: Sequence[str]) -> None:
        """``name``: of the Secret; ``names``: what the hub is called. Sidecars look for the first."""
        self.context = _context()
        """For the listener. Whoever connects after a renewal is shown the new certificate."""
        self.ca = ""
        """What sidecars have to trust, PEM; empty until there is a certificate to show."""
        self._client = client
        self._folder = f"/api/v1/namespaces/{namespace}/secrets"
        self._called = f"Secret {namespace}/{name}"
        self._namespace = namespace
        self._name = name
        self._names = tuple(names)
        self._shown = CertificateBundle()

    async def refresh(self) -> None:
        """Read the Secret, make what is missing or due, and show what it holds.

        Raises:
            Retryable: the API server is away, or others write it all the time.
            Terminal: it can't be read or written, or what somebody else has put there is of no use.
        """
        for _ in range(TRIES):
            secret = await self._read()
            found = _kept(secret)
            if not _is_ours(secret, found):
                self._show(
                    found, f"Correct it; or delete it, and gangctl makes its own. It is not labelled {LABEL}={OURS}"
                )
                return
            kept, why = rotate(found, self._names, datetime.now(UTC))
            if not why:
                self._show(kept, "Delete it, and it is made anew")
                return
            try:
                await self._write(secret, kept)
            except Conflict:
                continue  # another replica was faster: what it has stored is as good
            log.info("%s is written, because %s", self._called, why)
            self._show(kept, "Delete it, and it is made anew")
            return
        raise Retryable(f"{self._called} is written by others all the time")

    async def keep(self) -> NoReturn:
        """Keep it in order until cancelled. What was shown last goes on to be shown meanwhile."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.refresh()
            except ClusterError as error:
                log.warning("the hub's certificate can't be looked after: %s", error)

    def _show(self, kept: CertificateBundle, remedy: str) -> None:
        if kept == self._shown:
            return
        problem = _rehearsed(kept, self._names[0])
        if problem:
            raise Terminal(f"{self._called} is of no use: {problem}. {remedy}")
        _load(self.context, kept)
        self._shown, self.ca = kept, kept.ca.decode()

    async def _read(self) -> dict[str, Any] | None:
        try:
            answer = await self._client.request("GET", f"{self._folder}/{self._name}")
        except NotFound:
            return None
        try:
            return dict(json.loads(answer))
        except ValueError as error:
            raise Retryable(f"the API server's answer for {self._called} can't be read: {error}") from error

    async def _write(self, secret: dict[str, Any] | None, kept: CertificateBundle) -> None:
        known = secret or {}
        metadata = {**(known.get("metadata") or {}), "name": self._name, "namespace": self._namespace}
        metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: OURS}
        data = {CA: kept.ca, CA_KEY: kept.ca_key, CHAIN: kept.chain, KEY: kept.key}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            **known,
            "metadata": metadata,
            "data": {
                **(known.get("data") or {}),
                **{name: base64.b64encode(one).decode() for name, one in data.items()},
            },
        }
        method, path = ("POST", self._folder) if secret is None else ("PUT", f"{self._folder}/{self._name}")
        try:
            # A replica that doesn't lead needs it as well, to answer sidecars at all.
            await self._client.request(method, path, body=json.dumps(body).encode(), unguarded=True)
        except NotFound as error:
            if secret is None:  # there is no such namespace
                raise
            raise Conflict(f"{self._called} was deleted meanwhile") from error


def _kept(secret: dict[str, Any] | None) -> CertificateBundle:
    data = (secret or {}).get("data") or {}
    ca, ca_key, chain, key = (base64.b64decode(data.get(name) or "") for name in (CA, CA_KEY, CHAIN, KEY))
    return CertificateBundle(ca, ca_key, chain, key)


def _is_ours(secret: dict[str, Any] | None, found: CertificateBundle) -> bool:
    """One that is empty may be filled, whoever made it."""
    labels = ((secret or {}).get("metadata") or {}).get("labels") or {}
    return found == CertificateBundle() or labels.get(LABEL) == OURS


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # sidecars don't resume sessions
    return context


def _load(context: ssl.SSLContext, kept: CertificateBundle) -> None:
    """The ssl module reads certificates and keys from files alone: this one is in memory, and gone at once.

    Raises:
        ssl.SSLError: they are of no use.
    """
    number = os.memfd_create("gangctl-tls")
    try:
        os.write(number, kept.chain.rstrip() + b"\n" + kept.key)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


def _rehearsed(kept: CertificateBundle, name: str) -> str:
    """What a sidecar would say to it, found out by one handshake in memory; empty if it would be content."""
    server_context, client_context = _context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        _load(server_context, kept)
    except (ssl.SSLError, OSError, ValueError) as error:
        return f"{CHAIN} and {KEY} can't be used together ({error})"
    try:
        client_context.load_verify_locations(cadata=kept.ca.decode("ascii"))
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
            return f"sidecars don't take {CHAIN} as that of {name} ({error})"
    return ""
