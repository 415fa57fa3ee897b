"""Keeping a gang's PodDisruptionBudget as :mod:`gangctl.cluster.kube.pod.disruption_budget` has it.

It is there before the gang's first pod is created.

A budget that can't be had never stops a pod; that is said, at most once a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import defaultdict
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from gangctl.api.gangjob import GangJob
from gangctl.api.version import KIND
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import MERGE_PATCH, AlreadyExists, Client
from gangctl.cluster.kube.pod.disruption_budget import budget, min_available

log = logging.getLogger(__name__)

BUDGET_SECONDS = 5.0
"""How long each request may take: pods wait for it."""

PATIENCE_SECONDS = 4.0
"""For so long it is tried again at once: an earlier gang of the same name may have left its own, which goes soon."""

FIRST_RETRY_SECONDS = 0.2

AGAIN_SECONDS = 60.0
"""After how long, at the earliest, what failed is tried again."""


class DisruptionBudgets:
    """Which gangs are known to have theirs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[str, tuple[int, float]] = {}
        """By UID of the gang: ``minAvailable``, and until when that is good, on the monotonic clock."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def forget(self, uid: str) -> None:
        """The gang is gone."""
        self._kept.pop(uid, None)
        self._locks.pop(uid, None)

    async def ensure(self, job: GangJob) -> None:
        """Have the budget there."""
        uid, wanted = job.metadata.uid, min_available(job)
        async with self._locks[uid]:
            number, good_until = self._kept.get(uid, (wanted, 0.0))
            if number == wanted and time.monotonic() < good_until:
                return
            good_until = math.inf
            try:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type((Retryable, Conflict)),
                    stop=stop_after_delay(PATIENCE_SECONDS),
                    wait=wait_random_exponential(FIRST_RETRY_SECONDS, PATIENCE_SECONDS / 2),
                    reraise=True,
                ):
                    with attempt:
                        await self._have(job)
            except ClusterError as error:
                log.warning(
                    "gang %s has no PodDisruptionBudget, so a drain may take several of its pods at once: %s",
                    job.metadata.name,
                    error,
                )
                good_until = time.monotonic() + AGAIN_SECONDS
            self._kept[uid] = wanted, good_until

    async def _have(self, job: GangJob) -> None:
        path, wanted = paths.budgets(job.metadata.namespace), budget(job)
        try:
            await self._client.request("POST", path, body=json.dumps(wanted).encode(), timeout=BUDGET_SECONDS)
        except AlreadyExists:
            await self._change(f"{path}/{job.metadata.name}", job)

    async def _change(self, path: str, job: GangJob) -> None:
        found: dict[str, Any] = json.loads(await self._client.request("GET", path, timeout=BUDGET_SECONDS))
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences", ())
        if job.metadata.uid not in {owner.get("uid") for owner in owners}:
            if (KIND, job.metadata.name) in {(owner.get("kind"), owner.get("name")) for owner in owners}:
                raise Retryable(f"the PodDisruptionBudget {job.metadata.name} of an earlier gang has to go first")
            raise Terminal(f"there is a PodDisruptionBudget {job.metadata.name} that isn't this gang's; rename it")
        wanted = min_available(job)
        if found["spec"].get("minAvailable") == wanted:
            return
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"minAvailable": wanted}}
        await self._client.request(
            "PATCH", path, body=json.dumps(change).encode(), content_type=MERGE_PATCH, timeout=BUDGET_SECONDS
        )
