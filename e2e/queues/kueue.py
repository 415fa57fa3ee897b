"""Kueue on a cluster of our own: its manifests as they are, its manager as a process on the control plane.

The rule: nothing of Kueue is changed. Its CRDs, webhooks, conversions and roles come from its module; its manager is
built from it. Only what a Deployment would do is done here: the process, its configuration's addresses, the folder with
the certificate of its webhooks, and the endpoint of their Service.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import yaml

from e2e.cluster import addresses, programs
from e2e.cluster.lab import Lab
from e2e.gangs import Kubectl
from tests.wait import until

NAME = "kueue"
API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "kueue-system"
SERVICE = "kueue-webhook-service"
CERTIFICATE = "kueue-webhook-server-cert"
CONFIGURATION = "kueue-manager-config"
WEBHOOKS = (
    "mutatingwebhookconfiguration/kueue-mutating-webhook-configuration",
    "validatingwebhookconfiguration/kueue-validating-webhook-configuration",
)
PORT = 9443
READY_SECONDS = 90.0
_LEFT_OUT = {"APIService", "Deployment"}
POOL, TAINT = "gangctl.io/e2e-pool", "gangctl.io/e2e-reserved"
LABEL_QUEUE, LABEL_PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
LOW, HIGH = "e2e-low", "e2e-high"
HOSTNAME = "kubernetes.io/hostname"


@contextmanager
def kueue(lab: Lab) -> Iterator[None]:
    """Kueue, until the end of the block."""
    _, module = programs.on_demand(NAME)
    programs.ready([NAME])  # among the programs of the machine
    plane = lab.control_plane
    rendered = plane.kubectl("kustomize", str(module / "config" / "default")).stdout
    found = [one for one in yaml.safe_load_all(rendered) if one["kind"] not in _LEFT_OUT]
    hooks = [one for one in found if one["kind"].endswith("WebhookConfiguration")]
    _apply(lab, [_without_selector(one) for one in found if one not in hooks])
    _apply(lab, [_endpoint(), *hooks])
    folder = lab.home / NAME
    (folder / "certificates").mkdir(parents=True, exist_ok=True)
    plane.pki.issue(NAME, NAME, "system:masters")
    (folder / "kubeconfig").write_text(plane.pki.kubeconfig(NAME, f"https://{addresses.CONTROL}:6443"))
    config = next(one for one in found if one["metadata"]["name"] == CONFIGURATION)["data"]
    (folder / "config.yaml").write_text(json.dumps(_configured(yaml.safe_load(*config.values()), str(folder))))
    try:
        start(lab)
        yield
    finally:
        plane.kubectl("delete", *WEBHOOKS, "--ignore-not-found")
        kill(lab)


def start(lab: Lab) -> None:
    """Start its manager, and wait until it answers."""
    machine, folder = lab.control_plane.machine, lab.home / NAME
    machine.start(NAME, f"--config={folder}/config.yaml", f"--kubeconfig={folder}/kubeconfig")
    until("the certificate of Kueue's webhooks", lambda: _mounted(lab), READY_SECONDS, every=0.2)
    until(f"Kueue's webhooks (see {machine.log})", lambda: _answers(lab), READY_SECONDS, every=0.5)


def kill(lab: Lab) -> None:
    """Kill its manager, and wait for its end."""
    lab.control_plane.machine.stop(NAME)


def _configured(config: dict[str, Any], folder: str) -> dict[str, Any]:
    """Its own configuration, with the addresses of a machine that has other programs."""
    return config | {
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": "127.0.0.1:18081"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": PORT, "certDir": f"{folder}/certificates"},
        "leaderElection": {"leaderElect": False},
        "featureGates": {"VisibilityOnDemand": False},  # it serves an API of its own, with more certificates
    }


def _without_selector(one: dict[str, Any]) -> dict[str, Any]:
    """The webhooks' Service leads to no pod."""
    if (one["kind"], one["metadata"]["name"]) != ("Service", SERVICE):
        return one
    return one | {"spec": {key: value for key, value in one["spec"].items() if key != "selector"}}


def _endpoint() -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "ports": [{"port": PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [addresses.CONTROL], "conditions": {"ready": True}}],
    }


def _apply(lab: Lab, objects: list[dict[str, Any]]) -> None:
    text = yaml.safe_dump_all(objects)
    lab.control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)


def _mounted(lab: Lab) -> bool:
    """Write the certificate that Kueue has put into its Secret where a kubelet would mount it."""
    words = ("get", "secret", CERTIFICATE, "-n", NAMESPACE, "-o", "json")
    data = json.loads(lab.control_plane.kubectl(*words).stdout).get("data") or {}
    if not data.get("tls.crt"):
        return False
    for name, value in data.items():
        (lab.home / NAME / "certificates" / name).write_bytes(base64.b64decode(value))
    return True


def _answers(lab: Lab) -> bool:
    """Whether its webhooks take an object: those of both versions, so the conversion works as well."""
    flavor = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "answers"}}
    words = ("apply", "--dry-run=server", "-f", "-")
    return not lab.control_plane.kubectl(*words, text=json.dumps(flavor), check=False).returncode


@contextmanager
def priorities(kubectl: Kubectl) -> Iterator[None]:
    """The priorities LOW and HIGH of Workloads."""
    classes = [
        {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in ((LOW, 10), (HIGH, 1000))
    ]
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(classes))
    try:
        yield
    finally:
        kubectl("delete", "workloadpriorityclass", LOW, HIGH)


@contextmanager
def pooled(kubectl: Kubectl, namespace: str, nodes: Sequence[str]) -> Iterator[None]:
    """The nodes, in the pool of this namespace's queue."""
    for node in nodes:
        kubectl("label", "node", node, f"{POOL}={namespace}", "--overwrite")
        kubectl("taint", "node", node, f"{TAINT}={namespace}:NoSchedule", "--overwrite")
    try:
        yield
    finally:
        for node in nodes:
            kubectl("taint", "node", node, f"{TAINT}-")
            kubectl("label", "node", node, f"{POOL}-")


@contextmanager
def queue(
    kubectl: Kubectl, namespace: str, quota: Mapping[str, str], nodes: Sequence[str], *, topology: bool = False
) -> Iterator[str]:
    """A queue of this namespace, with quota on nodes that others keep off; its name is the namespace's.

    Args:
        kubectl: of the cluster.
        namespace: whose gangs may name it.
        quota: amount by resource.
        nodes: the nodes of its flavor.
        topology: whether Kueue chooses the node of each pod.
    """
    flavor = {
        "nodeLabels": {POOL: namespace},
        "tolerations": [{"key": TAINT, "operator": "Equal", "value": namespace, "effect": "NoSchedule"}],
        **({"topologyName": namespace} if topology else {}),
    }
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": namespace, "resources": resources}]}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    cluster_wide: dict[str, dict[str, Any]] = {
        **({"Topology": {"levels": [{"nodeLabel": HOSTNAME}]}} if topology else {}),
        "ResourceFlavor": flavor,
        "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption},
    }
    made: list[dict[str, Any]] = [
        {"apiVersion": API, "kind": kind, "metadata": {"name": namespace}, "spec": spec}
        for kind, spec in cluster_wide.items()
    ]
    made.append(
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": namespace, "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        }
    )
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(made))
    try:
        with pooled(kubectl, namespace, nodes):
            yield namespace
    finally:
        for kind in reversed(cluster_wide):
            kubectl("delete", kind, namespace, "--wait=false")
