"""Fixtures of tests with real frameworks."""

from __future__ import annotations

import pytest

from e2e.clusters import Cluster
from e2e.conftest import uncaptured


@pytest.fixture(scope="session")
def frameworks(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """The image with PyTorch, Lightning and transformers, loaded on all nodes."""
    with uncaptured(request.config):
        return cluster.image("examples-frameworks")
