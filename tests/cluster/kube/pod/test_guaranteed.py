"""A pod that would be Guaranteed without the sidecar is Guaranteed with it; others keep the configured resources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangctl.cluster.kube.injection import sidecar_resources
from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.pod.podcases import CONTACT, SETTINGS, job

CONFIGURED = {"requests": {"cpu": "20m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}}
WHOLE = {"limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}}
SAME = {"cpu": "250m", "memory": "128Mi"}


def mirrored(*resources: Any, configured: dict[str, Any] = CONFIGURED, pod: Any = None) -> dict[str, Any]:
    return sidecar_resources(configured, [{"name": "x", "resources": one} for one in resources], pod)


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        ({"cpu": 4, "memory": "8Gi"}, None),
        ({"cpu": "4", "memory": "8Gi"}, {}),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": None, "memory": "8Gi"}),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4000m", "memory": "8192Mi"}),
        ({"cpu": "0.5", "memory": "1.5G"}, {"cpu": "500m", "memory": "15e8"}),
        ({"cpu": ".1", "memory": 1024}, {"cpu": "100m", "memory": "1Ki"}),
    ],
)
def test_the_sidecar_of_a_guaranteed_pod_requests_its_limits(limits: Any, requests: Any) -> None:
    assert mirrored({"limits": limits, "requests": requests}, WHOLE) == {"requests": SAME, "limits": SAME}


@pytest.mark.parametrize(
    "other",
    [
        None,
        {},
        "much",
        {"limits": None},
        {"limits": {"cpu": "4"}},
        {"limits": {"cpu": "0", "memory": "8Gi"}},
        {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "3"}},
        {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"memory": "8G"}},
        {"limits": {"cpu": "four", "memory": "8Gi"}},
        {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "4x"}},
        {"requests": {"cpu": "4", "memory": "8Gi"}},
        {"limits": {"nvidia.com/gpu": "1"}},
    ],
)
def test_one_other_container_leaves_the_configured_resources(other: Any) -> None:
    assert mirrored(WHOLE, other) == CONFIGURED


def test_a_configured_limit_stays_as_it_is() -> None:
    limits = {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "1Gi"}
    made = mirrored(WHOLE, configured={"requests": {"cpu": "10m"}, "limits": limits, "claims": []})
    assert made == {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": limits, "claims": []}
    assert mirrored(WHOLE, configured={}) == {"requests": SAME, "limits": SAME}


def test_a_pod_with_resources_of_its_own_has_their_class() -> None:
    assert mirrored(WHOLE, pod={"limits": {"cpu": "8", "memory": "16Gi"}}) == CONFIGURED


def sidecar(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["a"], "resources": WHOLE}], **spec}}
    made = job(json.dumps([{"name": "worker", "template": template}]))
    found: dict[str, Any] = build_pod(made, CreatePod("worker-0", 0), SETTINGS, CONTACT, restart_all=True)
    return dict(found["spec"]["initContainers"][0])


def test_init_containers_count() -> None:
    memory = {"cpu": "250m", "memory": "64Mi"}
    assert sidecar()["resources"] == {"requests": memory, "limits": memory}
    assert sidecar(initContainers=[{"name": "first", "resources": {}}])["resources"] == SETTINGS.sidecar_resources


@pytest.mark.parametrize(
    ("pod", "user"), [(None, None), ({}, None), ({"runAsUser": 1000}, None), ({"runAsUser": 0}, 65532)]
)
def test_the_sidecar_has_a_user_of_its_own_only_where_the_pods_is_root(pod: Any, user: int | None) -> None:
    context = sidecar(securityContext=pod)["securityContext"]
    assert (context.get("runAsUser"), context.get("runAsGroup")) == (user, user)
    assert context["runAsNonRoot"] is True
