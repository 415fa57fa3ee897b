"""Writes of GangJobs: the status, and the deletion of a gang.

The rule: a write is done only when the informer has the object that the write returned, so the next decision sees it.
After a write with an unknown outcome the object is read again.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.status import Status
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NoAnswer, NotFound, Rejected
from gangctl.cluster.kube.watch.decoding import kind_of
from gangctl.cluster.kube.watch.namespaces import NamespacedCopy
from gangctl.cluster.kube.watch.projections import GANGS, KubeGang

LARGE_BYTES: Final = 1 << 20
"""Size of an object that etcd may reject; its limit is 1.5 MiB by default."""


class GangWriter:
    """Writes GangJobs."""

    def __init__(self, client: Client, gangs: NamespacedCopy[KubeGang]) -> None:
        """``gangs``: the informer that gets what was written."""
        self.failures = Counter({"Conflict": 0, "Retryable": 0, "Terminal": 0})
        """Number of failed status writes. Each kind is there from the beginning, so that a first failure counts."""
        self._client = client
        self._gangs = gangs

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        """Store the status; see the port."""
        metadata = job.metadata
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        path, content = paths.gang(metadata.namespace, metadata.name), json.dumps(body).encode()
        try:
            answer = await self._client.request("PUT", f"{path}/status", body=content)
        except (Conflict, NotFound) as error:
            self.failures["Conflict"] += 1
            await self._read_again(job)
            raise Conflict(f"gang {metadata.name} was changed by another process: {error}") from error
        except Rejected as error:
            self.failures["Terminal"] += 1
            raise Terminal(f"the status of gang {metadata.name} can't be stored: {error.message}") from error
        except Retryable as error:
            stored = await self._stored_all_the_same(job, status)
            if stored is not None:
                return stored
            too_large = len(content) > LARGE_BYTES and not isinstance(error, NoAnswer)  # etcd has no code for this
            self.failures["Terminal" if too_large else "Retryable"] += 1
            if too_large:
                raise Terminal(
                    f"the status of gang {metadata.name} can't be stored, it has {len(content)} bytes: {error}"
                ) from error
            raise
        return self._stored(answer)

    async def delete(self, job: GangJob) -> None:
        """Delete the gang. The garbage collector deletes its pods."""
        metadata = job.metadata
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": metadata.uid},
            "propagationPolicy": "Background",
        }
        path = paths.gang(metadata.namespace, metadata.name)
        try:
            answer = await self._client.request("DELETE", path, body=json.dumps(options).encode())
        except (NotFound, Conflict) as error:
            if await self._read_again(job) is not None:
                raise Retryable(f"gang {metadata.name} is still there: {error}") from error
            return
        if kind_of(answer) == KIND:
            self._stored(answer)
        else:
            self._gangs.drop(metadata.uid)

    def _stored(self, answer: bytes) -> GangJob:
        """Give the object of an answer to the informer."""
        item = GANGS.item(answer)
        if item is None or item.job is None:
            raise Terminal(f"the API server's answer isn't a GangJob: {'' if item is None else item.unreadable}")
        self._gangs.put(item)
        return item.job

    async def _stored_all_the_same(self, job: GangJob, status: Status) -> GangJob | None:
        """The stored object, if it has this status by now; None also if that can't be found out."""
        try:
            stored = await self._read_again(job)
        except ClusterError:
            return None
        return stored if stored is not None and stored.status == status else None

    async def _read_again(self, job: GangJob) -> GangJob | None:
        """Read the stored object and give it to the informer; None if it is gone."""
        path = paths.gang(job.metadata.namespace, job.metadata.name)
        try:
            found = GANGS.item(await self._client.request("GET", path))
        except NotFound:
            found = None
        if found is not None:
            self._gangs.put(found)
        if found is None or found.uid != job.metadata.uid:
            self._gangs.drop(job.metadata.uid)
            return None
        return found.job
