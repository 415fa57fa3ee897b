"""The Lease of one deployment: which process leads, its address for sidecars, and since when. Only reads and writes it.

The rule: every write carries the resourceVersion of the record that it replaces. Of two writes that replace the same
record, one succeeds.
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
"""The annotation with the holder's address for sidecars, such as ``wss://10.0.0.7:8443/v1/connect``."""
RELEASED_SECONDS: Final = 1
"""The duration of a Lease without a holder: the API server doesn't accept 0."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The fields of a stored Lease."""

    version: str
    """Its resourceVersion: it changes with every write."""
    holder: str
    """Identity of the process that leads; empty = none."""
    duration: float
    """Seconds after the holder's last write for which others must assume that it leads."""
    address: str
    """The holder's address for sidecars; empty = unknown."""
    transitions: int
    """Number of changes of the holder."""
    document: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole object, so that a write keeps the fields that others have set."""


class KubeLease:
    """The Lease ``name`` in ``namespace``, by the API server."""

    def __init__(self, client: Client, namespace: str, name: str, request_seconds: float) -> None:
        """``request_seconds``: time limit of one request."""
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
        return parse_lease(found)

    async def write(self, over: LeaseRecord | None, holder: str, duration: int, address: str) -> LeaseRecord:
        """Replace the record ``over`` (None: there is no Lease yet) and return the stored one.

        Raises:
            Conflict: ``over`` is no longer what is stored.
            Retryable: it is unknown whether the record was stored.
            Terminal: this controller may not write it.
        """
        document = lease_object(over, holder, duration, address, time.time())
        document["metadata"] = {**document["metadata"], "name": self._name, "namespace": self._namespace}
        method, path = ("POST", self._folder) if over is None else ("PUT", f"{self._folder}/{self._name}")
        body = json.dumps(document).encode()
        try:
            return parse_lease(
                await self._client.request(method, path, body=body, timeout=self._seconds, unguarded=True)
            )
        except NotFound as error:
            raise Conflict(f"the Lease {self._name} was deleted meanwhile: {error}") from error


def parse_lease(text: bytes) -> LeaseRecord:
    """The record in the API server's answer. The API server has checked the types of its fields.

    Raises:
        Retryable: the answer is no Lease; it may come from a proxy.
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
    """The object to store: ``over`` with a new holder, or renewed by the same one.

    ``now``, in seconds since the epoch, is for people: no decision depends on it.
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
