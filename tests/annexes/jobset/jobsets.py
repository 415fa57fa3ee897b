"""JobSets as the API server stores them, after JobSet's webhooks."""

from __future__ import annotations

from typing import Any


def worker(**container: Any) -> dict[str, Any]:
    """A pod template with one worker."""
    made = {"name": "trainer", "image": "example/train", "command": ["python", "train.py"], **container}
    return {"spec": {"restartPolicy": "Never", "containers": [made]}}


def replicated(name: str, size: int = 2, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A replicated job. ``more``: fields of its Job's spec, or ``dependsOn`` and ``groupName``."""
    beside: dict[str, Any] = {key: more.pop(key) for key in ("dependsOn", "groupName") if key in more}
    job = {
        "parallelism": size,
        "completions": size,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": worker(),
        **more,
    }
    return {"name": name, "replicas": replicas, "groupName": "default", "template": {"spec": job}, **beside}


def jobset(*jobs: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A JobSet that is gangctl's."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "llama",
            "namespace": "team",
            "uid": "u-1",
            "labels": {"team": "red", "kueue.x-k8s.io/queue-name": "gpus"},
            "annotations": annotations or {},
        },
        "spec": {
            "managedBy": "gangctl.io/jobset-controller",
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "replicatedJobs": list(jobs),
            **spec,
        },
    }
