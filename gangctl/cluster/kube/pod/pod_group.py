"""A gang's PodGroup of scheduling.k8s.io: no pod is bound to a node until all required members fit.

The rule: one group for each set of pods that is created together (``status.baseIncarnation``), before its first pod. A
group counts every pod that has its name, and pods that still end must not stand in for new ones: so those that are
created after a suspension or a recreation have a group of their own. A pod that replaces a single one joins the group,
where the others count for it. A gang that asks for a group must never get a pod without one.

The API is alpha and has another version in each release. What is written here is the same in all of them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import LABEL_INCARNATION, LABEL_UID, gang_selector
from gangctl.api.version import API_VERSION, KIND
from gangctl.cluster.errors import Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import NOTHING, AlreadyExists, Client, NotFound

VERSIONS: Final = ("v1alpha3", "v1alpha2")
"""Of Kubernetes 1.37 and 1.36, the newest first."""
CHECKED_SECONDS: Final = 60.0
"""For so long a group that was found is not looked at again."""


def wants_group(job: GangJob) -> bool:
    """Whether gangctl creates PodGroups for this gang."""
    return job.spec.gang_scheduling.type == "PodGroup"


def group_name(job: GangJob) -> str:
    """The group of the pods that are created now."""
    return f"{job.metadata.name}-{job.status.base_incarnation}"


def min_count(job: GangJob) -> int:
    """The required members. Spares are in the group too: within a role, any of them can take the rank of another."""
    return sum(role.replicas for role in job.spec.roles)


def pod_group(job: GangJob, version: str) -> dict[str, Any]:
    """The object to create, as JSON values. It is deleted with the gang."""
    gang = job.metadata
    return {
        "apiVersion": f"{paths.SCHEDULING}/{version}",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": gang.namespace,
            "labels": gang_selector(gang.uid) | {LABEL_INCARNATION: str(job.status.base_incarnation)},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": gang.name,
                    "uid": gang.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count(job)}}},
    }


class PodGroups:
    """Creates the groups of all gangs that ask for them, and deletes those of earlier pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[str, tuple[str, float]] = {}
        """By UID of the gang: the group that was found, and until when it needs no look, on the monotonic clock."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def forget(self, uid: str) -> None:
        """Forget a gang that is gone."""
        self._found.pop(uid, None)
        self._locks.pop(uid, None)

    async def dry_run(self, job: GangJob) -> str:
        """Why the cluster takes no group of this gang, in a sentence; empty = it does, or the gang wants none.

        Raises:
            Retryable: that isn't known now.
        """
        try:
            if wants_group(job):
                await self._create(job, {"dryRun": "All"})
        except Terminal as error:
            return str(error)
        return ""

    async def ensure(self, job: GangJob) -> None:
        """Create the group of the pods that are created now, if the gang wants one.

        Raises:
            Retryable: it can't be created now.
            Terminal: the cluster has no such API, or another object has the name.
        """
        if not wants_group(job):
            return
        uid, name = job.metadata.uid, group_name(job)
        async with self._locks[uid]:
            found, until = self._found.get(uid, ("", 0.0))
            if found == name and time.monotonic() < until:
                return
            await self._create(job, NOTHING)
            self._found[uid] = name, time.monotonic() + CHECKED_SECONDS

    async def _create(self, job: GangJob, query: Mapping[str, str]) -> None:
        for version in VERSIONS:
            path, body = paths.pod_groups(version, job.metadata.namespace), json.dumps(pod_group(job, version))
            try:
                await self._client.request("POST", path, query=query, body=body.encode())
            except NotFound:
                continue
            except AlreadyExists:
                # A dry run may find the group of the pods that are there; those that come get another one.
                await self._check(f"{path}/{group_name(job)}", job, of_any_size=bool(query))
            if job.status.base_incarnation > 0 and not query:
                await self._delete_earlier(path, job)
            return
        raise Terminal(
            f"spec.gangScheduling: the cluster serves no PodGroup ({paths.SCHEDULING}/{' or '.join(VERSIONS)}), so its "
            "scheduler can't place this gang as a whole; turn on the feature gates GenericWorkload and GangScheduling "
            "(Kubernetes 1.36 or newer), or create the gang without gangScheduling"
        )

    async def _check(self, path: str, job: GangJob, *, of_any_size: bool) -> None:
        """Look whether the group that has the name already is the gang's."""
        try:
            found: dict[str, Any] = json.loads(await self._client.request("GET", path))
        except NotFound:
            raise Retryable(f"the PodGroup {group_name(job)} existed and is gone") from None
        owners = found["metadata"].get("ownerReferences", ())
        if job.metadata.uid not in {owner.get("uid") for owner in owners}:
            if (KIND, job.metadata.name) in {(owner.get("kind"), owner.get("name")) for owner in owners}:
                raise Retryable(f"the PodGroup {group_name(job)} of an earlier gang hasn't been deleted yet")
            raise Terminal(f"a PodGroup {group_name(job)} exists that doesn't belong to the gang; delete or rename it")
        asked = found["spec"]["schedulingPolicy"].get("gang", {}).get("minCount")
        if asked != min_count(job) and not of_any_size:
            raise Terminal(
                f"the PodGroup {group_name(job)} asks for {asked} pods, and the gang needs {min_count(job)}; "
                "suspend and resume the gang, which gives it a new group"
            )

    async def _delete_earlier(self, path: str, job: GangJob) -> None:
        """Delete the groups of earlier pods. The API server keeps each until the last of its pods has ended."""
        earlier = f"{LABEL_UID}={job.metadata.uid},{LABEL_INCARNATION}!={job.status.base_incarnation}"
        await self._client.request("DELETE", path, query={"labelSelector": earlier})
