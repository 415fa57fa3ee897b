"""Fixtures of tests with JobSets: their own controller, and those that make or admit JobSets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import installation
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.installation import Installed
from e2e.jobsets.jobset import jobset
from e2e.jobsets.trainer import trainer
from e2e.queues.kueue import kueue


@pytest.fixture(scope="session")
def jobset_running(cluster: Cluster) -> Iterator[Lab]:
    """JobSet with its webhooks, which also default and validate the JobSets of other controllers."""
    if cluster.lab is None:
        pytest.skip("JobSet as a process needs a cluster of our own: run without KUBECONFIG")
    cluster.image("examples")
    with jobset(cluster.lab):
        yield cluster.lab


@pytest.fixture(scope="session")
def gangctl_runs_jobsets(cluster: Cluster, jobset_running: Lab, gangctl_installed: Installed) -> Iterator[Installed]:  # noqa: ARG001
    """Gangctl, which runs the JobSets that name it."""
    installation.enable(cluster, "jobsets")
    yield gangctl_installed
    installation.enable(cluster, "jobsets", wanted=False)


@pytest.fixture(scope="session")
def trainer_running(jobset_running: Lab) -> Iterator[Lab]:
    """Kubeflow Trainer, which makes a JobSet of each TrainJob."""
    with trainer(jobset_running):
        yield jobset_running


@pytest.fixture(scope="session")
def kueue_running(trainer_running: Lab) -> Iterator[Lab]:
    """Kueue, with its integrations for JobSets and TrainJobs: it looks for their CRDs when it starts."""
    with kueue(trainer_running):
        yield trainer_running
