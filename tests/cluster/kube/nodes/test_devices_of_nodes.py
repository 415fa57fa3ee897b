"""Which devices of a node are read: extended resources, with how many of them pods may have."""

from __future__ import annotations

import json
from typing import Any

from gangctl.cluster.kube.projections import nodes
from gangctl.core.facts.world import Shortage
from gangctl.kubernetes.objects import Node
from gangctl.kubernetes.signals import SignalTable, default_rows


def node(**status: Any) -> Node:
    """A node with this status, as the API server sends it."""
    raw = {"metadata": {"uid": "n", "name": "node-1", "resourceVersion": "7"}, "status": status}
    found = nodes(SignalTable(default_rows())).item(json.dumps(raw).encode())
    assert found is not None
    return found


def test_a_device_that_pods_may_not_have_is_shown() -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "hugepages-2Mi": "4", "ephemeral-storage": "9", "nvidia.com/gpu": "8"}
    left = {**amounts, "cpu": "7", "memory": "30Gi", "hugepages-2Mi": "2", "nvidia.com/gpu": "7"}
    (shown,) = node(capacity=amounts, allocatable=left).signals
    assert shown.shortage == Shortage("nvidia.com/gpu", 7)
    assert not node(capacity=amounts, allocatable=amounts).signals
    assert not node().signals


def test_a_resource_that_is_not_allocatable_at_all_has_no_device_left() -> None:
    (shown,) = node(capacity={"example.com/nic": "2"}, allocatable={}).signals
    assert shown.shortage == Shortage("example.com/nic", 0)


def test_round_amounts_are_read_as_kubernetes_writes_them() -> None:
    (shown,) = node(capacity={"rdma/hca": "1k"}, allocatable={"rdma/hca": "900"}).signals
    assert shown.shortage == Shortage("rdma/hca", 900)
    assert not node(capacity={"rdma/hca": "2000"}, allocatable={"rdma/hca": "2k"}).signals
    assert not node(capacity={"rdma/hca": "many"}, allocatable={"rdma/hca": "many"}).signals
