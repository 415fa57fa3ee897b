"""The objects that a gang owns beside its pods: created before its first pod, checked for their owner, and remembered.

The rule: an object that has the right name but another owner must never be taken for the gang's.

* **PodDisruptionBudget**: every eviction restarts the whole gang, so a drain must evict one pod, wait for its
  replacement, and only then evict the next. ``minAvailable`` is a number, since percentages and ``maxUnavailable``
  don't work for an owner without a scale subresource. A failure to create it must never stop a pod; it is logged at
  most once a minute.
* **PodGroup** of scheduling.k8s.io: no pod is bound to a node until all required members fit. There is a group for each
  set of pods that is created together (``status.baseIncarnation``). A group counts every pod that has its name, and
  pods that still end must not stand in for new ones: so those that are created after a suspension or a recreation have
  a group of their own. A pod that replaces a single one joins the group, where the others count for it. A gang that
  asks for a group must never get a pod without one. The API has another version in each release.

Kueue's Workload (``queues.py``) is created in the same way.
"""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from gangctl.api.gangjob import GangJob
from gangctl.api.names import API_VERSION, KIND, LABEL_INCARNATION, LABEL_UID, gang_selector
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import NOTHING, REQUEST_SECONDS, AlreadyExists, Client, NotFound
from gangctl.core.policy.size import allowed_sizes

log = logging.getLogger(__name__)

BUDGET_SECONDS: Final = 5.0
"""Time limit of each request for a budget: pods wait for it."""
RETRYING_SECONDS: Final = 4.0
"""How long a failed request is retried at once: the budget of an earlier gang of the same name is deleted soon."""
FIRST_RETRY_SECONDS: Final = 0.2
COOLDOWN_SECONDS: Final = 60.0
"""Minimum time until the next attempt after a failure."""
SERVED: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Of PodGroups, the newest first: Kubernetes 1.37 has two, 1.36 the last."""
WITHOUT_PRIORITY: Final = "v1alpha2"
"""It takes a priority only with a feature gate of its own, and its scheduler asks for none."""
CHECKED_SECONDS: Final = 60.0
"""For so long a group that was found is not looked at again."""


def owner_reference(job: GangJob) -> dict[str, Any]:
    """Return the reference by which an object belongs to the gang, and is deleted with it."""
    gang = job.metadata
    return {"apiVersion": API_VERSION, "kind": KIND, "name": gang.name, "uid": gang.uid, "controller": True}


async def create_owned(
    client: Client,
    job: GangJob,
    collection: str,
    body: Mapping[str, Any],
    *,
    query: Mapping[str, str] = NOTHING,
    seconds: float = REQUEST_SECONDS,
) -> tuple[bytes, bool]:
    """Create an object that the gang owns; return the stored object, and whether it existed already.

    Args:
        client: makes the requests.
        job: the gang.
        collection: path of the object's collection.
        body: the object as JSON values.
        query: ``dryRun``, for example.
        seconds: time limit of each request.

    Raises:
        NotFound: there is no such collection.
        Retryable: the object of this name is that of an earlier gang, or is gone by now.
        Terminal: the object of this name belongs to something else.
    """
    kind, name = body["kind"], body["metadata"]["name"]
    try:
        made = await client.request("POST", collection, query=query, body=body, timeout=seconds)
    except AlreadyExists:
        pass
    else:
        return made, False
    try:
        found = await client.request("GET", f"{collection}/{name}", timeout=seconds)
    except NotFound:
        raise Retryable(f"the {kind} {name} existed and is gone") from None
    owners = json.loads(found)["metadata"].get("ownerReferences", ())
    if job.metadata.uid not in {owner.get("uid") for owner in owners}:
        if (KIND, job.metadata.name) in {(owner.get("kind"), owner.get("name")) for owner in owners}:
            raise Retryable(f"the {kind} {name} of an earlier gang hasn't been deleted yet")
        raise Terminal(f"a {kind} {name} exists that doesn't belong to the gang; delete or rename it")
    return found, True


class _Remembered:
    """What was ensured for each gang, by UID, and until when that needs no look."""

    def __init__(self) -> None:
        self._ensured: dict[str, tuple[Hashable, float]] = {}
        """Until when: on the monotonic clock."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def forget(self, uid: str) -> None:
        self._ensured.pop(uid, None)
        self._locks.pop(uid, None)

    async def ensure(self, uid: str, state: Hashable, make: Callable[[], Awaitable[float]]) -> None:
        """Make the state so, unless it is remembered. ``make`` returns for how many seconds to remember it."""
        async with self._locks[uid]:
            known, good_until = self._ensured.get(uid, (None, 0.0))
            if known != state or time.monotonic() >= good_until:
                self._ensured[uid] = state, await make() + time.monotonic()


class DisruptionBudgets:
    """Creates and updates the budgets of all gangs: at most one pod of a gang may be evicted at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._remembered = _Remembered()

    def forget(self, uid: str) -> None:
        self._remembered.forget(uid)

    async def ensure(self, job: GangJob) -> None:
        """Create the gang's budget, or update it, unless it is known to be right, or the user wants none."""
        if job.spec.recovery.pod_disruption_budget != "None":
            await self._remembered.ensure(job.metadata.uid, _min_available(job), lambda: self._try(job))

    async def _try(self, job: GangJob) -> float:
        try:
            retrying = AsyncRetrying(
                retry=retry_if_exception_type((Retryable, Conflict)),
                stop=stop_after_delay(RETRYING_SECONDS),
                wait=wait_random_exponential(FIRST_RETRY_SECONDS, RETRYING_SECONDS / 2),
                reraise=True,
            )
            await retrying(self._create_or_update, job)
        except ClusterError as error:
            log.warning(
                "gang %s has no PodDisruptionBudget, so a drain may evict several of its pods at once: %s",
                job.metadata.name,
                error,
            )
            return COOLDOWN_SECONDS
        return CHECKED_SECONDS  # No watch shows that it was deleted.

    async def _create_or_update(self, job: GangJob) -> None:
        path, number = paths.pod_disruption_budgets(job.metadata.namespace), _min_available(job)
        found, existed = await create_owned(self._client, job, path, _budget(job), seconds=BUDGET_SECONDS)
        stored: dict[str, Any] = json.loads(found) if existed else {}
        if not existed or stored["spec"].get("minAvailable") == number:
            return
        version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
        change = {"metadata": version, "spec": {"minAvailable": number}}
        await self._client.request("PATCH", f"{path}/{job.metadata.name}", body=change, timeout=BUDGET_SECONDS)


def _min_available(job: GangJob) -> int:
    """Count all members except one: with spares, or those that a smaller role runs with, which has used its spares."""
    smaller = {} if job.status.size is None else job.status.size.members
    return sum(smaller.get(role.name, role.replicas + role.spares) for role in job.spec.roles) - 1


def _budget(job: GangJob) -> dict[str, Any]:
    gang = job.metadata
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": gang.name,
            "namespace": gang.namespace,
            "labels": gang_selector(gang.uid),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "minAvailable": _min_available(job),
            "selector": {"matchLabels": gang_selector(gang.uid)},
            # A pod that isn't ready (its image can't be pulled) must not block a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def wants_group(job: GangJob) -> bool:
    """Return whether gangctl creates PodGroups for this gang."""
    return job.spec.gang_scheduling.type == "PodGroup"


def group_name(job: GangJob) -> str:
    """Name the group of the pods that are created now."""
    return f"{job.metadata.name}-{job.status.base_incarnation}"


class PodGroups:
    """Creates the groups of all gangs that ask for them, and deletes those of earlier pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._remembered = _Remembered()

    def forget(self, uid: str) -> None:
        self._remembered.forget(uid)

    async def dry_run(self, job: GangJob) -> str:
        """Say why the cluster takes no group of this gang; empty = it does, or the gang wants none."""
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
        if wants_group(job):
            await self._remembered.ensure(job.metadata.uid, group_name(job), lambda: self._create(job, NOTHING))

    async def _create(self, job: GangJob, query: Mapping[str, str]) -> float:
        for version in SERVED:
            path = paths.pod_groups(version, job.metadata.namespace)
            try:
                found, existed = await create_owned(self._client, job, path, _group(job, version), query=query)
            except NotFound:
                continue
            if not existed or not query:  # A dry run may find the group of the pods that are there.
                _check(job, json.loads(found))
            if job.status.base_incarnation > 0 and not query:
                # The API server keeps each group of earlier pods until the last of its pods has ended.
                earlier = f"{LABEL_UID}={job.metadata.uid},{LABEL_INCARNATION}!={job.status.base_incarnation}"
                await self._client.request("DELETE", path, query={"labelSelector": earlier})
            return CHECKED_SECONDS
        raise Terminal(
            f"spec.gangScheduling: the cluster serves no PodGroup ({paths.SCHEDULING}/{' or '.join(SERVED)}), so its "
            "scheduler can't place this gang as a whole; turn on this API and the feature gate GenericWorkload (on "
            "Kubernetes 1.36 also GangScheduling), or create the gang without gangScheduling"
        )


def _min_count(job: GangJob) -> int:
    """Count the members without which no attempt starts.

    The others are in the group too: within a role, any of them can take the rank of another.
    """
    return sum(allowed_sizes(role)[-1] for role in job.spec.roles)


def _check(job: GangJob, found: Mapping[str, Any]) -> None:
    """Check that the stored group has the size and the topology of the gang. The API server may drop the topology."""
    asked = found["spec"]["schedulingPolicy"].get("gang", {}).get("minCount")
    if asked != _min_count(job):
        raise Terminal(
            f"the PodGroup {group_name(job)} asks for {asked} pods, and the gang needs {_min_count(job)}; "
            "suspend and resume the gang, which gives it a new group"
        )
    if _constraints(job) and not found["spec"].get("schedulingConstraints"):
        raise Terminal(
            "spec.gangScheduling.topologyKey: the API server keeps no topology of a PodGroup, so the pods could be "
            "placed anywhere; turn on the feature gate TopologyAwareWorkloadScheduling in the API server and the "
            "scheduler, then suspend and resume the gang, or create the gang without topologyKey"
        )


def _constraints(job: GangJob) -> dict[str, Any]:
    """Return where all pods are to be together; empty = anywhere."""
    scheduling = job.spec.gang_scheduling
    key = scheduling.topology_key if scheduling.type == "PodGroup" else ""
    return {"topology": [{"key": key}]} if key else {}


def _priority_class(job: GangJob) -> str:
    """Return the priority class of all pods; empty = the default. The scheduler refuses a group that has another."""
    found = {role.template.written["spec"].get("priorityClassName") or "" for role in job.spec.roles}
    if len(found) > 1:
        raise Terminal(
            f"spec.roles: their templates have {len(found)} values of priorityClassName, and the pods of a PodGroup "
            "must have one priority; give all roles the same, or create the gang without gangScheduling"
        )
    return str(found.pop())


def _group(job: GangJob, version: str) -> dict[str, Any]:
    gang = job.metadata
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": _min_count(job)}}}
    if (priority := _priority_class(job)) and version != WITHOUT_PRIORITY:
        spec["priorityClassName"] = priority
    if constraints := _constraints(job):
        spec["schedulingConstraints"] = constraints
    return {
        "apiVersion": f"{paths.SCHEDULING}/{version}",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": gang.namespace,
            "labels": gang_selector(gang.uid) | {LABEL_INCARNATION: str(job.status.base_incarnation)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }
