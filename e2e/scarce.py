"""Gangs that each need most of a cluster: a resource of which the nodes have four pieces, and gangs that need three.

Without a scheduler that places them together, two such gangs can each get a part and wait for the rest without end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.clusters import Cluster
from e2e.gangs import Gang, sleepers
from tests.wait import until

RESOURCE = "gangctl.io/place"
ON_NODE = 2
MEMBERS = 3


@contextmanager
def places(cluster: Cluster) -> Iterator[None]:
    """Give each of the two nodes so many of them, for as long as this is open."""
    nodes = cluster.kubectl("get", "nodes", "-o", "name").split()
    field = f"/status/capacity/{RESOURCE.replace('/', '~1')}"
    for node in nodes:
        _patch(cluster, node, {"op": "add", "path": field, "value": str(ON_NODE)})
    for node in nodes:
        cluster.watch(node, holds=lambda one: RESOURCE in one["status"]["allocatable"])
    yield
    for node in nodes:
        _patch(cluster, node, {"op": "remove", "path": field})


def _patch(cluster: Cluster, node: str, change: dict[str, str]) -> None:
    cluster.kubectl("patch", node, "--subresource=status", "--type=json", "-p", json.dumps([change]))


def needing_most(name: str, directory: str, *, members: int = MEMBERS, **spec: Any) -> dict[str, Any]:
    """A gang that needs three of the four places, or another number."""
    made = sleepers(name, replicas=members, directory=directory, **spec)
    container = made["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {RESOURCE: "1"}}
    return made


def nodes_of(gang: Gang) -> list[str]:
    """The nodes that its pods have, one for each pod; those without a node have none."""
    found = (pod["spec"].get("nodeName", "") for pod in gang.pods().values())
    return [name for name in found if name]


def first_to_run(gangs: tuple[Gang, Gang]) -> tuple[Gang, Gang]:
    """The gang that runs, and the one that waits: which is which is up to the scheduler."""

    def runs() -> Gang | None:
        return next((gang for gang in gangs if gang.status.get("phase") == "Running"), None)

    ran = until("one of the two gangs runs", runs, 90, every=0.25)
    return ran, gangs[1] if ran is gangs[0] else gangs[0]


def waits_whole(gang: Gang) -> None:
    """It has all its pods, and no node for any, though there is room for one."""
    until("all pods of the other gang are there", lambda: len(gang.pods()) == MEMBERS, every=0.25)
    gang.until("it says what it waits for", lambda status: "can't start: " in status.get("message", ""))
    assert nodes_of(gang) == []
