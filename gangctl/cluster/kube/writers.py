"""Writes of GangJobs and their pods: the status, and the creation, dry run and deletion of pods.

The rule: a write is done only when the informer has the object that the write returned, so the next decision sees it.
After a write with an unknown outcome the object is read again. A pod that has the right name but another owner must
never be taken for the gang's pod. A pod that is there must never look gone, whatever a request for it is answered: its
worker may run.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.names import member_name, pod_name
from gangctl.api.status import Status
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import AlreadyExists, Client, NoAnswer, NotFound, Rejected
from gangctl.cluster.kube.decoding import kind_of
from gangctl.cluster.kube.projections import GANGS, PODS, KubeGang, KubePod
from gangctl.cluster.kube.reflector import NamespacedCopy
from gangctl.core.policy.pods import CreatePod, DeletePod

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
        path, content = paths.gang_path(metadata.namespace, metadata.name), json.dumps(body).encode()
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
        path = paths.gang_path(metadata.namespace, metadata.name)
        try:
            answer = await self._client.delete(path, metadata.uid, propagationPolicy="Background")
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
        path = paths.gang_path(job.metadata.namespace, job.metadata.name)
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


NO_DRY_RUN: Final = "does not support dry run"
"""The API server's words, without a reason of its own, for a webhook with side effects."""

Build = Callable[[GangJob, CreatePod], dict[str, Any]]
"""The pod to create, as JSON values.

Raises:
    Terminal: a field of its template can't be used.
"""


class PodWriter:
    """Writes pods."""

    def __init__(self, client: Client, pods: NamespacedCopy[KubePod], build: Build, build_to_try: Build) -> None:
        """``pods``: the informer that gets what was written; ``build_to_try``: makes the pod of a dry run."""
        self._client = client
        self._pods = pods
        self._build = build
        self._build_to_try = build_to_try

    async def create(self, job: GangJob, create: CreatePod) -> None:
        """Create a member's pod; see the port.

        Raises:
            Retryable: it can't be created now, or a pod of another owner has its name.
            Terminal: the API server rejects it.
        """
        path = paths.pods(job.metadata.namespace)
        try:
            answer = await self._client.request("POST", path, body=self._build(job, create))
        except AlreadyExists:
            answer = await self._existing(job, pod_name(job.metadata.name, create.member, create.incarnation))
        except Conflict as error:  # Many writes at once to the same quota.
            raise Retryable(str(error)) from error
        self._put(answer)

    async def delete(self, job: GangJob, delete: DeletePod) -> None:
        grace = {} if delete.grace_seconds is None else {"gracePeriodSeconds": delete.grace_seconds}
        path = paths.pod(job.metadata.namespace, delete.name)
        try:
            answer = await self._client.delete(path, delete.uid, **grace)
        except (NotFound, Conflict) as error:
            await self._read_again(path, delete.uid, error)
            return
        if kind_of(answer) == "Pod":
            self._put(answer)

    async def _read_again(self, path: str, uid: str, refusal: Exception) -> None:
        """Drop the pod from the reads if it is gone or another has its name. A webhook may have refused with a 409."""
        try:
            found = PODS.item(await self._client.request("GET", path))
        except NotFound:
            found = None
        if found is not None and found.uid == uid:
            self._pods.put(found)
            raise Retryable(f"the pod is still there: {refusal}")
        self._pods.drop(uid)

    async def dry_run(self, job: GangJob, role: str) -> str:
        """Return why the API server rejects a pod of this role, in a sentence; empty = it admits it."""
        create = CreatePod(member_name(role, 0), job.status.base_incarnation)
        try:
            await self._client.request(
                "POST",
                paths.pods(job.metadata.namespace),
                query={"dryRun": "All", "fieldValidation": "Strict"},
                body=self._build_to_try(job, create),
            )
        except AlreadyExists:  # The API server checks this last, so everything else is right.
            return ""
        except Rejected as error:
            # A webhook without dry run can't be asked. Its answer is seen when the pods are created.
            return "" if NO_DRY_RUN in error.message else f"role {role}: {error.message}"
        except Terminal as error:
            return str(error)
        return ""

    async def _existing(self, job: GangJob, name: str) -> bytes:
        """The pod that has this name already, if the gang owns it."""
        try:
            answer = await self._client.request("GET", paths.pod(job.metadata.namespace, name))
        except NotFound:
            raise Retryable(f"pod {name} existed and is gone") from None
        except Terminal as error:  # That says nothing about the pods that the template makes.
            raise Retryable(f"pod {name} exists and can't be read: {error}") from error
        found = PODS.item(answer)
        if found is None or found.owner != job.metadata.uid:
            raise Retryable(
                f"another pod has the name {name} (perhaps of an earlier gang of the same name); it must be deleted "
                "first"
            )
        return answer

    def _put(self, answer: bytes) -> None:
        item = PODS.item(answer)
        if item is not None:
            self._pods.put(item)
