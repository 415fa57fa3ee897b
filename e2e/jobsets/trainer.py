"""Kubeflow Trainer on a cluster of our own, with its webhooks and a runtime: it makes a JobSet of each TrainJob."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import yaml

from e2e import operators
from e2e.cluster import programs
from e2e.cluster.lab import Lab
from e2e.operators import Operator

NAME = "trainer-controller-manager"
API = "trainer.kubeflow.org/v1alpha1"
RUNTIME = "manifests/base/runtimes/torch_distributed.yaml"


def runtime(name: str, image: str, **spec: Any) -> dict[str, Any]:
    """The module's own runtime for torchrun, with another image. ``spec``: more fields of its JobSets."""
    made: dict[str, Any] = yaml.safe_load((programs.module(NAME) / RUNTIME).read_text())
    made["metadata"]["name"] = name
    template = made["spec"]["template"]["spec"]
    (container,) = template["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    container["image"] = image
    template |= spec
    return made


def of_sdk(code: str) -> list[str]:
    """The command that the SDK writes for a function with this code. Its own starts torchrun."""
    script = f"\nread -r -d '' SCRIPT << EOM\n\n{code}\n\nEOM\n"
    return ["bash", "-c", f'{script}printf "%s" "$SCRIPT" > "train.py"\npython3 "train.py"']


def train_job(
    name: str, runtime_name: str, nodes: int, command: list[str], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A TrainJob of this runtime with a command of its own."""
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"runtimeRef": {"name": runtime_name}, "trainer": {"numNodes": nodes, "command": command}},
    }


TRAINER = Operator(
    name=NAME,
    kustomizations=("manifests/base/crds", "manifests/base/webhook"),
    configuration="manifests/base/manager/controller_manager_config.yaml",
    settings={"certManagement": {"enable": False}},
    port=9445,
    takes_folder=False,
    accepted={
        "apiVersion": API,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "answers"},
        "spec": {"template": {"spec": {"replicatedJobs": []}}},
    },
)


def trainer(lab: Lab) -> AbstractContextManager[None]:
    """Trainer, until the end of the block. JobSet's CRD must be there."""
    return operators.running(TRAINER, lab)
