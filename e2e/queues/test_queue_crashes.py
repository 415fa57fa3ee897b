"""gangctl or Kueue is killed in the middle of what they do together: no quota is lost, and none is used twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.failpoints import Hits, sends, writes
from e2e.gangs import Gang
from e2e.installation import Installed
from e2e.queues import test_elastic_kueue as elastic
from e2e.queues.crashes import Crashes, Program, each_crash, in_use, uses
from e2e.queues.kueue import HIGH, LOW, priorities, queue
from e2e.queues.test_kueue import NODE, QUOTA, Queues, Submit, end, waits, workers
from tests.wait import until

STATUS = "/workloads/[^/]+/status"


def _ends(change: dict[str, Any]) -> bool:
    return any((one["type"], one["status"]) == ("Finished", "True") for one in change["status"].get("conditions", ()))


MOMENTS: dict[str, Hits] = {
    "asks": sends("POST", "/workloads", lambda new: str(new["metadata"]["name"]).startswith("gangjob-high-")),
    "suspends": lambda call: call.path.endswith("/gangjobs/low/status") and writes("Suspended", 1)(call),
    "gives-back": sends("PATCH", STATUS, lambda change: change["status"].get("admission", "") is None),
    "ends": sends("PATCH", STATUS, _ends),
}
"""Requests of gangctl while a gang preempts another and then ends."""


@pytest.fixture
def queues(cluster: Cluster, kueue_installed: Installed, namespace: str) -> Iterator[Queues]:  # noqa: ARG001
    """A queue with quota for one gang of two."""
    with queue(cluster.kubectl, namespace, QUOTA, [NODE]) as name, priorities(cluster.kubectl):
        yield Queues(name, namespace, cluster.kubectl)


@each_crash
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_gang_that_preempts_another_gets_its_quota_and_gives_it_back(
    crashes: Crashes, queues: Queues, submit: Submit, shared_dir: Path, moment: str, program: Program, *, after: bool
) -> None:
    def preempted() -> None:
        low = submit(workers("low", queues.name, shared_dir, priority=LOW))
        low.runs(1)
        uses(queues.kubectl, queues.namespace)
        high = submit(workers("high", queues.name, shared_dir, priority=HIGH))
        high.runs(1)
        waits(low, queues.name)
        assert low.pods() == {}
        uses(queues.kubectl, queues.namespace)
        assert len(queues.workloads("high")) == len(queues.workloads("low")) == 1
        end(shared_dir, "high", 1, 0)
        high.ends()
        assert low.runs(2)["restarts"]["counted"] == 0
        uses(queues.kubectl, queues.namespace)
        delete(queues, low, high)

    await crashes.during(preempted, program, MOMENTS[moment], after=after)


@each_crash
@pytest.mark.usefixtures("third_node", "kueue_installed")
async def test_a_gang_that_is_admitted_partially_gives_the_rest_back(
    crashes: Crashes,
    cluster: Cluster,
    namespace: str,
    submit: Submit,
    shared_dir: Path,
    program: Program,
    *,
    after: bool,
) -> None:
    gives = sends("PATCH", STATUS, lambda change: bool(change["status"].get("reclaimablePods")))
    with queue(cluster.kubectl, namespace, elastic.QUOTA, ["node-1", "node-2", "node-3"]) as name:
        queues = Queues(name, namespace, cluster.kubectl)

        def admitted_partially() -> None:
            sizes = {"type": "Step", "step": 2}
            gang = submit(elastic.document(shared_dir, name, replicas=4, minReplicas=2, sizes=sizes))
            gang.until("it runs", lambda status: status.get("phase") == "Running")
            until("the rest is given back", lambda: elastic.counts(queues.workloads("elastic")[0])[2] == 2)
            assert len(gang.pods()) == 2
            uses(cluster.kubectl, namespace)
            delete(queues, gang)

        await crashes.during(admitted_partially, program, gives, after=after)


def delete(queues: Queues, *gangs: Gang) -> None:
    """Delete the gangs: no quota is in use then."""
    for one in gangs:
        queues.kubectl("delete", "gj", one.name, "-n", queues.namespace, "--timeout=60s")
    until("no quota is in use", lambda: in_use(queues.kubectl, queues.name) == 0, every=0.25)
