"""The Lease of one deployment: who leads, where sidecars find it, and since when. Reading and writing it, no more.

Every write is locked by the resourceVersion of the record it goes out from: of two that go out from the same, one wins.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gangctl.api.model import rfc3339
from gangctl.cluster.errors import Conflict, Retryable
from gangctl.cluster.kube.client import Client, NotFound

ADDRESS: Final = "gangctl.io/address"
"""The annotation with the holder's address for sidecars, as in ``wss://10.0.0.7:8443/v1/connect``."""
RELEASED_SECONDS: Final = 1
"""The duration of a Lease that nobody holds: the API server takes no 0."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the Lease says."""

    version: str
    """Its resourceVersion: another one means that somebody has written."""
    holder: str
    """The identity of who leads; empty = nobody."""
    duration: float
    """Seconds for which the holder may be taken to lead after its last write."""
    address: str
    """Where sidecars find the holder; empty = unknown."""
    transitions: int
    """How often the holder has changed."""
    document: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole object: what others have put there stays there."""


class KubeLease:
    """The Lease ``name`` in ``namespace``."""

    def __init__(self, client: Client, namespace: str, name: str, request_seconds: float) -> None:
        """``request_seconds``: how long one request may take."""
        self._client = client
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._seconds = request_seconds

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is stored; None if there is none.

        Raises:
            Retryable: the API server is away.
            Terminal: this controller may not read it.
        """
        try:
            found = await self._client.request("GET", f"{self._folder}/{self._name}", timeout=self._seconds)
        except NotFound:
            return None
        return parse(found)

    async def write(self, over: LeaseRecord | None, holder: str, duration: int, address: str) -> LeaseRecord:
        """Store a new record in place of ``over`` (None: there is none yet); the record as it is stored then.

        Raises:
            Conflict: ``over`` isn't what is stored any more.
            Retryable: it is unknown whether it was stored.
            Terminal: this controller may not write it.
        """
        document = lease_object(over, holder, duration, address, time.time())
        document["metadata"] = {**document["metadata"], "name": self._name, "namespace": self._namespace}
        method, path = ("POST", self._folder) if over is None else ("PUT", f"{self._folder}/{self._name}")
        body = json.dumps(document).encode()
        try:
            return parse(await self._client.request(method, path, body=body, timeout=self._seconds, unguarded=True))
        except NotFound as error:
            raise Conflict(f"the Lease {self._name} was deleted meanwhile: {error}") from error


def parse(text: bytes) -> LeaseRecord:
    """A Lease as the API server writes it: the types of its fields are the API server's to check.

    Raises:
        Retryable: somebody else has answered in its place.
    """
    try:
        document = json.loads(text)
        metadata, spec = document["metadata"], document.get("spec") or {}
        return LeaseRecord(
            version=metadata["resourceVersion"],
            holder=spec.get("holderIdentity") or "",
            duration=spec.get("leaseDurationSeconds") or 0,
            address=(metadata.get("annotations") or {}).get(ADDRESS, ""),
            transitions=spec.get("leaseTransitions") or 0,
            document=document,
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Retryable(f"the answer is no Lease: {text[:100]!r}") from error


def lease_object(over: LeaseRecord | None, holder: str, duration: int, address: str, now: float) -> dict[str, Any]:
    """The object to store: ``over`` with another holder, or with the same one who is still there.

    ``now``, in seconds since the epoch, is for people: nobody decides from it.
    """
    before = {} if over is None else over.document
    metadata, spec = before.get("metadata") or {}, before.get("spec") or {}
    same = over is not None and over.holder == holder
    changes = 0 if over is None else over.transitions + (1 if holder and not same else 0)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), ADDRESS: address}},
        "spec": {
            **spec,
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "acquireTime": spec.get("acquireTime") if same else rfc3339(now),
            "renewTime": rfc3339(now),
            "leaseTransitions": changes,
        },
    }
