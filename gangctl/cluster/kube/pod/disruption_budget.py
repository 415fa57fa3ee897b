"""A gang's PodDisruptionBudget: at most one of its pods may be evicted at a time.

The rule: every eviction restarts the whole gang, so a drain must evict one pod, wait for its replacement, and only then
evict the next. ``minAvailable`` is a number, since percentages and ``maxUnavailable`` don't work for an owner without a
scale subresource. The budget exists before the gang's first pod. A failure to create it must never stop a pod; it is
logged at most once a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import defaultdict
from typing import Any, Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from gangctl.api.gangjob import GangJob
from gangctl.api.names import gang_selector
from gangctl.api.version import API_VERSION, KIND
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import MERGE_PATCH, AlreadyExists, Client

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 5.0
"""Time limit of each request: pods wait for it."""
RETRYING_SECONDS: Final = 4.0
"""How long a failed request is retried at once: the budget of an earlier gang of the same name is deleted soon."""
FIRST_RETRY_SECONDS: Final = 0.2
COOLDOWN_SECONDS: Final = 60.0
"""Minimum time until the next attempt after a failure."""


def min_available(job: GangJob) -> int:
    """All members except one, including spares."""
    return sum(role.replicas + role.spares for role in job.spec.roles) - 1


def pod_disruption_budget(job: GangJob) -> dict[str, Any]:
    """The object to create, as JSON values. It has the gang's name, and is deleted with the gang."""
    gang = job.metadata
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": gang.name,
            "namespace": gang.namespace,
            "labels": gang_selector(gang.uid),
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
        "spec": {
            "minAvailable": min_available(job),
            "selector": {"matchLabels": gang_selector(gang.uid)},
            # A pod that isn't ready (its image can't be pulled) must not block a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


class DisruptionBudgets:
    """Creates and updates the budgets of all gangs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ensured: dict[str, tuple[int, float]] = {}
        """By UID of the gang: ``minAvailable``, and until when it needs no check, on the monotonic clock."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def forget(self, uid: str) -> None:
        """Forget a gang that is gone."""
        self._ensured.pop(uid, None)
        self._locks.pop(uid, None)

    async def ensure(self, job: GangJob) -> None:
        """Create the gang's budget, or update it, unless it is known to be right, or the user wants none."""
        if job.spec.recovery.pod_disruption_budget == "None":
            return
        uid, wanted = job.metadata.uid, min_available(job)
        async with self._locks[uid]:
            number, good_until = self._ensured.get(uid, (wanted, 0.0))
            if number == wanted and time.monotonic() < good_until:
                return
            good_until = math.inf
            try:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type((Retryable, Conflict)),
                    stop=stop_after_delay(RETRYING_SECONDS),
                    wait=wait_random_exponential(FIRST_RETRY_SECONDS, RETRYING_SECONDS / 2),
                    reraise=True,
                ):
                    with attempt:
                        await self._create_or_update(job)
            except ClusterError as error:
                log.warning(
                    "gang %s has no PodDisruptionBudget, so a drain may evict several of its pods at once: %s",
                    job.metadata.name,
                    error,
                )
                good_until = time.monotonic() + COOLDOWN_SECONDS
            self._ensured[uid] = wanted, good_until

    async def _create_or_update(self, job: GangJob) -> None:
        path, body = paths.pod_disruption_budgets(job.metadata.namespace), json.dumps(pod_disruption_budget(job))
        try:
            await self._client.request("POST", path, body=body.encode(), timeout=REQUEST_SECONDS)
        except AlreadyExists:
            await self._update(f"{path}/{job.metadata.name}", job)

    async def _update(self, path: str, job: GangJob) -> None:
        stored: dict[str, Any] = json.loads(await self._client.request("GET", path, timeout=REQUEST_SECONDS))
        metadata, name = stored["metadata"], job.metadata.name
        owners = metadata.get("ownerReferences", ())
        if job.metadata.uid not in {owner.get("uid") for owner in owners}:
            if (KIND, name) in {(owner.get("kind"), owner.get("name")) for owner in owners}:
                raise Retryable(f"the PodDisruptionBudget {name} of an earlier gang hasn't been deleted yet")
            raise Terminal(f"a PodDisruptionBudget {name} exists that doesn't belong to the gang; delete or rename it")
        wanted = min_available(job)
        if stored["spec"].get("minAvailable") == wanted:
            return
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"minAvailable": wanted}}
        await self._client.request(
            "PATCH", path, body=json.dumps(change).encode(), content_type=MERGE_PATCH, timeout=REQUEST_SECONDS
        )
