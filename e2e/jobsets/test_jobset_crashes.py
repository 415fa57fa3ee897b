"""gangctl or Kueue is killed while a JobSet preempts another: no quota is lost, and none is used twice."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from e2e.api_proxy import Call
from e2e.clusters import Cluster
from e2e.failpoints import Hits, sends
from e2e.jobsets.test_peers import create, until_condition
from e2e.jobsets.test_queued_jobsets import PRIORITY, admitted, gang_of, queued
from e2e.queues.crashes import Crashes, Program, each_crash, in_use, uses
from e2e.queues.kueue import HIGH, LOW, priorities, queue
from tests.wait import until


def _is_suspended(change: dict[str, Any]) -> bool:
    found = change["status"].get("conditions", ())
    return ("Suspended", "True") in {(one["type"], one["status"]) for one in found}


MOMENTS: dict[str, Hits] = {
    "makes-the-gang": sends("PATCH", "/gangjobs/high"),
    "suspends-the-gang": sends("PATCH", "/gangjobs/low", lambda change: change["spec"] == {"suspend": True}),
    "stores-the-status": sends("PATCH", "/jobsets/low/status", _is_suspended),
    "resumes-the-gang": sends("PATCH", "/gangjobs/low", lambda change: change["spec"].get("suspend") is False),
}
"""Requests of gangctl since a JobSet preempts another."""


@each_crash
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
async def test_a_jobset_that_preempts_another_gets_its_quota_and_gives_it_back(
    crashes: Crashes, cluster: Cluster, namespace: str, moment: str, program: Program, *, after: bool
) -> None:
    preempts = Event()

    def hits(call: Call) -> bool:
        return preempts.is_set() and MOMENTS[moment](call)

    with priorities(cluster.kubectl), queue(cluster.kubectl, namespace, {"cpu": "200m"}, ["node-1"]) as name:
        low, high = queued("low", name, 2), queued("high", name, 2)
        low["metadata"]["labels"][PRIORITY], high["metadata"]["labels"][PRIORITY] = LOW, HIGH

        def preempted() -> None:
            create(cluster, namespace, low)
            gang = gang_of(cluster, namespace, "low")
            gang.runs(1)
            uses(cluster.kubectl, namespace, sidecars=False)
            preempts.set()
            create(cluster, namespace, high)
            gang_of(cluster, namespace, "high").runs(1)
            until_condition(cluster, namespace, "jobset/low", "Suspended")
            until("its pods are gone", lambda: not gang.pods(), every=0.25)
            uses(cluster.kubectl, namespace, sidecars=False)
            assert admitted(cluster, namespace) == {"high"}
            cluster.kubectl("delete", "jobset", "high", "-n", namespace)
            assert gang.runs(2)["restarts"]["counted"] == 0
            uses(cluster.kubectl, namespace, sidecars=False)
            cluster.kubectl("delete", "jobset", "low", "-n", namespace)
            until("no quota is in use", lambda: in_use(cluster.kubectl, name) == 0, every=0.25)

        await crashes.during(preempted, program, hits, after=after)
