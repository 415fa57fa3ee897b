"""What the administrator sets for the sidecars of all gangs is in their pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.pod.podcases import CONTACT, MINIMAL, SETTINGS, job


def spec(settings: KubeSettings, roles: str = MINIMAL) -> dict[str, Any]:
    found: dict[str, Any] = build_pod(job(roles), CreatePod("worker-0", 0), settings, CONTACT, restart_all=True)["spec"]
    return found


def test_a_pod_gets_the_pull_secrets_for_the_sidecar_after_its_own_and_once() -> None:
    settings = replace(SETTINGS, sidecar_pull_secrets=("ours", "shared"))
    assert "imagePullSecrets" not in spec(SETTINGS)
    assert spec(settings)["imagePullSecrets"] == [{"name": "ours"}, {"name": "shared"}]
    written = MINIMAL.replace(
        "      containers:", "      imagePullSecrets: [{name: theirs}, {name: shared}]\n      containers:"
    )
    assert spec(SETTINGS, written)["imagePullSecrets"] == [{"name": "theirs"}, {"name": "shared"}]
    names = [one["name"] for one in spec(settings, written)["imagePullSecrets"]]
    assert names == ["theirs", "shared", "ours"]


def test_fields_of_the_sidecars_security_context_are_replaced_and_the_others_stay() -> None:
    ours = spec(SETTINGS)["initContainers"][0]["securityContext"]
    changed = spec(replace(SETTINGS, sidecar_security_context={"runAsUser": 1000}))["initContainers"][0]
    assert changed["securityContext"] == ours | {"runAsUser": 1000}
    assert spec(SETTINGS)["initContainers"][0]["securityContext"] == ours, "nothing is shared between pods"
