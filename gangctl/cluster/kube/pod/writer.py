"""Writes of pods: creation, dry run and deletion.

The rule: a write is done only when the informer has the pod that the write returned, so the next decision sees it. A
pod that has the right name but another owner must never be taken for the gang's pod. A pod that is there must never
look gone, whatever a request for it is answered: its worker may run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import member_name, pod_name
from gangctl.cluster.errors import Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import AlreadyExists, Client, NotFound, Rejected
from gangctl.cluster.kube.watch.decoding import kind_of
from gangctl.cluster.kube.watch.namespaces import NamespacedCopy
from gangctl.cluster.kube.watch.projections import PODS, KubePod
from gangctl.core.policy.pods import CreatePod, DeletePod

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
            body = json.dumps(self._build(job, create)).encode()
            answer = await self._client.request("POST", path, body=body)
        except AlreadyExists:
            answer = await self._existing(job, pod_name(job.metadata.name, create.member, create.incarnation))
        except Conflict as error:  # Many writes at once to the same quota.
            raise Retryable(str(error)) from error
        self._put(answer)

    async def delete(self, job: GangJob, delete: DeletePod) -> None:
        """Delete a pod; see the port."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": delete.uid}}
        if delete.grace_seconds is not None:
            options["gracePeriodSeconds"] = delete.grace_seconds
        path = paths.pod(job.metadata.namespace, delete.name)
        try:
            answer = await self._client.request("DELETE", path, body=json.dumps(options).encode())
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
        """Why the API server rejects a pod of this role, in a sentence; empty = it admits it.

        Raises:
            ClusterError: that isn't known now.
        """
        create = CreatePod(member_name(role, 0), job.status.base_incarnation)
        try:
            await self._client.request(
                "POST",
                paths.pods(job.metadata.namespace),
                query={"dryRun": "All", "fieldValidation": "Strict"},
                body=json.dumps(self._build_to_try(job, create)).encode(),
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
