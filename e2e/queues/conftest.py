"""Fixtures of tests with real queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import installation
from e2e.clusters import Cluster
from e2e.installation import CHART, NAMESPACE, RELEASE, Installed
from e2e.queues.kueue import kueue


@pytest.fixture(scope="session")
def kueue_installed(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Installed]:
    """Kueue, and a gangctl that takes notice of it."""
    if cluster.lab is None:
        pytest.skip("Kueue as a process needs a cluster of our own: run without KUBECONFIG")
    with kueue(cluster.lab):
        _notice(cluster, enabled="true")
        yield gangctl_installed
        _notice(cluster, enabled="false")


def _notice(cluster: Cluster, *, enabled: str) -> None:
    installation.helm(
        cluster,
        *("upgrade", RELEASE, str(CHART), "--namespace", NAMESPACE, "--reuse-values"),
        *("--set", f"kueue.enabled={enabled}", "--wait", "--timeout=120s"),
    )
