"""Pods into which a mesh has put its proxy: by shape only, as Istio's webhook leaves them. No mesh runs here."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.pod.podcases import CONTACT, SETTINGS, job
from tests.cluster.kube.watch.test_projections import at, ended, read, running, waiting

ANNOTATIONS = {
    "traffic.sidecar.istio.io/excludeOutboundPorts": "8443",
    "traffic.sidecar.istio.io/includeInboundPorts": "",
    "config.linkerd.io/skip-outbound-ports": "8443",
}
LABELS = {"sidecar.istio.io/inject": "true"}
ROLES = f"""
- name: worker
  replicas: 1
  template:
    metadata: {{labels: {LABELS}, annotations: {ANNOTATIONS}}}
    spec: {{containers: [{{name: main, image: train, command: [train]}}]}}
"""


def injected(*, native: bool) -> dict[str, Any]:
    """The pod as it is stored: iptables first, then the proxy, as an init container or as one beside the worker."""
    made = build_pod(job(ROLES), CreatePod("worker-0", 0), SETTINGS, CONTACT, restart_all=True)
    proxy = {"name": "istio-proxy", "image": "proxyv2", **({"restartPolicy": "Always"} if native else {})}
    spec = made["spec"]
    spec["initContainers"][:0] = [{"name": "istio-init", "image": "proxyv2"}, *([proxy] if native else [])]
    if not native:
        spec["containers"].insert(0, proxy)
    return made


def status(made: dict[str, Any], states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    def of(key: str) -> list[dict[str, Any]]:
        return [{**states[one["name"]], "name": one["name"]} for one in made["spec"][key]]

    return {"phase": "Running", "initContainerStatuses": of("initContainers"), "containerStatuses": of("containers")}


def test_what_steers_a_mesh_is_kept_as_written() -> None:
    metadata = injected(native=True)["metadata"]
    assert ANNOTATIONS.items() <= metadata["annotations"].items()
    assert LABELS.items() <= metadata["labels"].items()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "proxy",
    [
        running("istio-proxy", "10:00:01"),
        waiting("istio-proxy", "CrashLoopBackOff", restartCount=9, lastState=ended("istio-proxy", 1, "Error")["state"]),
        ended("istio-proxy", 137, "OOMKilled"),
    ],
)
def test_a_proxy_is_neither_the_worker_nor_gangctl(proxy: dict[str, Any], *, native: bool) -> None:
    made = injected(native=native)
    states = {
        "istio-init": ended("istio-init", 0, "Completed"),
        "istio-proxy": proxy,
        "gangctl": running("gangctl", "10:00:06"),
        "main": running("main", "10:00:09"),
    }
    found = read(status(made, states), made["spec"], annotations=made["metadata"]["annotations"]).pod
    assert (found.started_at, found.ended_at, found.restarts, found.is_sound) == (at("10:00:09"), None, 0, True)


def test_a_proxy_that_outlives_the_worker_hides_no_end() -> None:
    """Without native sidecars the proxy runs on, and the pod with it."""
    made = injected(native=False)
    states = {
        "istio-init": ended("istio-init", 0, "Completed"),
        "istio-proxy": running("istio-proxy", "10:00:01"),
        "gangctl": running("gangctl", "10:00:06"),
        "main": ended("main", 0, "Completed"),
    }
    found = read(status(made, states), made["spec"], annotations=made["metadata"]["annotations"]).pod
    assert found.ended_at is not None
