"""JobSets in the cluster of a benchmark, to compare with. JobSet itself is that of e2e/jobsets, with its webhooks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import gangclient
from bench.steps import Steps
from e2e.cluster import programs
from e2e.clusters import Cluster
from e2e.jobsets.jobset import jobset

JOB = "workers"
"""The only replicated job."""
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where a pod of a JobSet, as one of an Indexed Job, finds its rank."""
PORT = 29500
CLIENT = "client"
"""The folder beside the script where plain pods find gangclient, which does nothing there."""
AGENT = "in-place-restart-agent"
ACCESS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: in-place-restart}
rules:
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: in-place-restart}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: in-place-restart}
subjects: [{kind: ServiceAccount, name: default}]
"""
"""What the agents of a namespace need."""
ALWAYS_ANEW = (1 << 31) - 1
"""The failed pods that make a Job fail, where pods are restarted in place."""


def running(cluster: Cluster) -> AbstractContextManager[None]:
    """JobSet in a cluster of our own until the end of the block; it is built first if it is missing."""
    if cluster.lab is None:
        raise SystemExit("JobSet as a process needs a cluster of our own: run without KUBECONFIG")
    return jobset(cluster.lab)


def plain(spec: dict[str, Any], steps: Steps, coordinator: str, mounted_at: str) -> dict[str, Any]:
    """Change the specification of a gang's pod into that of a Job's. ``mounted_at``: where pods see the folder."""
    package = Path(gangclient.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, steps.folder / CLIENT / package.name, ignore=ignored, dirs_exist_ok=True)
    spec["containers"][0]["env"] += [
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
        {"name": "WORLD_SIZE", "value": str(steps.ranks)},
        {"name": "MASTER_ADDR", "value": coordinator},
        {"name": "MASTER_PORT", "value": str(PORT)},
        {"name": "PYTHONPATH", "value": f"{mounted_at}/{CLIENT}"},
    ]
    return spec | {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}


def under_agent(spec: dict[str, Any], steps: Steps, mounted_at: str) -> dict[str, Any]:
    """Add JobSet's agent to this pod, as a sidecar: the kubelet restarts all containers when the worker or it fails.

    As the main container, its restarts would wait for the kubelet's back-off (10 s, doubled each time).
    """
    shutil.copy(programs.on_demand(AGENT)[0], steps.folder / AGENT)
    (worker,) = spec["containers"]
    path = "metadata.annotations['jobset.sigs.k8s.io/jobset-name']"
    agent = {
        "name": "agent",
        "image": worker["image"],
        "command": [f"{mounted_at}/{AGENT}"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "JOBSET_NAME", "valueFrom": {"fieldRef": {"fieldPath": path}}},
        ],
        "restartPolicy": "Always",
        "restartPolicyRules": [_all_anew("In", 1)],
        "startupProbe": {
            "httpGet": {"path": "/barrier-is-down", "port": 8081},
            "periodSeconds": 1,
            "failureThreshold": 10_000,
        },
        "volumeMounts": worker["volumeMounts"],
    }
    worker |= {"restartPolicy": "Never", "restartPolicyRules": [_all_anew("NotIn", 0)]}
    return spec | {"initContainers": [agent]}


def _all_anew(operator: str, code: int) -> dict[str, Any]:
    return {"action": "RestartAllContainers", "exitCodes": {"operator": operator, "values": [code]}}


def manifest(name: str, members: int, pod: Mapping[str, Any], *, in_place: bool = False) -> dict[str, Any]:
    """A JobSet of one Indexed Job, whose pods are recreated or restarted. Rank 0 is NAME-workers-0-0.NAME."""
    job = {
        "completions": members,
        "parallelism": members,
        "completionMode": "Indexed",
        "backoffLimit": ALWAYS_ANEW if in_place else 0,
        "template": {"spec": dict(pod)},
        **({"podReplacementPolicy": "Failed"} if in_place else {}),
    }
    strategy = "InPlaceRestart" if in_place else "Recreate"
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "successPolicy": {"operator": "All"},
            "failurePolicy": {"maxRestarts": 1000, "restartStrategy": strategy},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [{"name": JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }
