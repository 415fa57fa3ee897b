"""The faults of e2e/test_jobsets.py again, with JobSet's own controller and webhooks beside gangctl."""

from __future__ import annotations

import pytest

from e2e.installation import Installed
from e2e.test_jobsets import (
    apply,
    test_a_killed_worker_restarts_in_the_pods_that_its_peers_know_by_name,
    test_a_lost_node_moves_one_pod_whose_name_stays,
    test_a_part_of_a_pod_or_a_pod_that_fails_costs_no_other,
    test_a_sick_device_moves_its_pod_and_a_hang_restarts_in_place,
)

__all__ = [
    "apply",
    "test_a_killed_worker_restarts_in_the_pods_that_its_peers_know_by_name",
    "test_a_lost_node_moves_one_pod_whose_name_stays",
    "test_a_part_of_a_pod_or_a_pod_that_fails_costs_no_other",
    "test_a_sick_device_moves_its_pod_and_a_hang_restarts_in_place",
]


@pytest.fixture(scope="module")
def jobsets_run(gangctl_runs_jobsets: Installed) -> Installed:
    """The installed release with JobSets, beside JobSet."""
    return gangctl_runs_jobsets
