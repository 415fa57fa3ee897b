"""A real API server accepts every object that the chart can render, but for kinds that the cluster doesn't have."""

from __future__ import annotations

import json

import pytest

from e2e.chart import FULL, RELAYED, Helm, helm_program
from e2e.clusters import Cluster
from e2e.installation import Installed

MONITORING = "monitoring.coreos.com/"


@pytest.mark.parametrize("values", [FULL, RELAYED, {"watchNamespaces": ["default"], "metrics": {"secure": False}}])
def test_the_api_server_accepts_every_object(
    cluster: Cluster,
    gangctl_installed: Installed,  # noqa: ARG001 - the namespace must exist
    values: dict[str, object],
) -> None:
    found = Helm(helm_program()).rendered(values, "accepted").objects
    known = [one for one in found if not one["apiVersion"].startswith(MONITORING)]
    assert len(known) > 10
    listed = {"apiVersion": "v1", "kind": "List", "items": known}
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    printed = cluster.kubectl(*words, "-f", "-", stdin=json.dumps(listed))
    assert printed.count("serverside-applied") == len(known)
