"""The chart as Helm renders it, without a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import versions

REPOSITORY = Path(__file__).parents[1]
CHART = REPOSITORY / "charts" / "gangctl"
NAMESPACE = "gangctl-system"

Object = dict[str, Any]

TERM = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
FULL: dict[str, Any] = {
    "crds": {"keep": False},
    "replicaCount": 3,
    "image": {"repository": "registry.example/gang/controller", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "sidecar": {
        "image": {"repository": "registry.example/gang/sidecar", "tag": "sha256:" + "a" * 64, "pullPolicy": "Never"},
        "resources": {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"cpu": 1, "memory": "64Mi"}},
        "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
        "securityContext": {"runAsUser": 1000},
    },
    "commonLabels": {"cost-center": "42", "app.kubernetes.io/name": "another"},
    "serviceAccount": {"name": "restarter", "annotations": {"a": "b"}},
    "audience": "example.org",
    "deviceGuard": {"enabled": True},
    "deviceTaints": {"enabled": True},
    "nodeRecords": {"enabled": True, "condition": True, "maintenanceRequests": True, "suspectNamespaces": 1},
    "nodeSignals": [{"name": "lamp", "label": {"key": "example.com/lamp", "notValues": ["green"]}, "answer": "Drain"}],
    "kueue": {"enabled": True},
    "workerOutput": {"enabled": False},
    "leaderElection": {"leaseDurationSeconds": 60, "renewDeadlineSeconds": 40, "retryPeriodSeconds": 5},
    "hub": {
        "port": 9443,
        "service": {
            "type": "LoadBalancer",
            "annotations": {"c": "d"},
            "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv4"],
        },
        "tls": {"secretName": "from-cert-manager"},
    },
    "logFormat": "text",
    "logLevel": "debug",
    "resources": {"limits": {"memory": "2Gi"}},
    "podAnnotations": {"e": "f"},
    "podLabels": {"team": "research", "app.kubernetes.io/name": "another"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "priorityClassName": "system-cluster-critical",
    "terminationGracePeriodSeconds": 60,
    "networkPolicy": {
        "enabled": True,
        "hubFrom": [{"ipBlock": {"cidr": "10.0.0.0/16"}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
        "pageFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}], "ports": [{"port": 443, "protocol": "TCP"}]}],
    },
    "flowSchema": {"enabled": True},
    "extraArgs": ["--lease-duration=61"],
    "extraVolumes": [{"name": "proxy-ca", "configMap": {"name": "proxy-ca"}}],
    "extraVolumeMounts": [{"name": "proxy-ca", "mountPath": "/etc/proxy-ca", "readOnly": True}],
    "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
    "metrics": {
        "port": 9100,
        "annotations": False,
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "monitoring"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "monitoring"}},
        "dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}, "annotations": {"folder": "training"}},
    },
    "page": {"port": 9445, "service": {"enabled": True}},
    "tracing": {
        "uiUrl": "https://jaeger.example/ui",
        "endpoint": "https://collector.example:4318/otlp",
        "headersSecret": {"name": "collector", "key": "otlp"},
        "sampler": "traceidratio",
        "samplerArg": "0.25",
    },
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
}
"""All values that can be set together, each one other than its default."""


RELAYED: dict[str, Any] = {
    "relays": {"enabled": True},
    "autoscaling": {"enabled": True, "maxReplicas": 20},
    "networkPolicy": {"enabled": True},
}
"""Replicas that relay, as many as an autoscaler wants."""


REGISTRY = "registry.example"
"""The registry of images, where a test sets no other: the chart has no default."""


def helm_program() -> Path:
    """The Helm of the e2e programs, else in GANGCTL_E2E_BIN, else in PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    places = (versions.binaries() / "helm", Path(os.environ.get("GANGCTL_E2E_BIN", "/nonexistent")) / "helm")
    found = next((str(place) for place in places if place.exists()), None) or shutil.which("helm")
    if found is None:
        raise FileNotFoundError("there is no helm: run `python -m e2e.cluster build`, or put one on PATH")
    return Path(found)


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm, for this chart."""

    program: Path

    def run(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> Result:
        """Run a command of Helm, without a cluster, with these values and REGISTRY over the chart's; None = neither."""
        command = [self.program, *arguments, *([] if values is None else ["--values=-"])]
        env = {**os.environ, "KUBECONFIG": os.devnull}
        given = json.dumps({"global": {"imageRegistry": REGISTRY}} | dict(values or {}))  # which is YAML
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=env)
        return Result(done.returncode, done.stdout, done.stderr)

    def template(self, values: Mapping[str, Any] | None = None, release: str = "gangctl") -> Result:
        """Render the chart."""
        return self.run("template", release, CHART, f"--namespace={NAMESPACE}", values=values or {})

    def rendered(self, values: Mapping[str, Any] | None = None, release: str = "gangctl") -> Rendered:
        """What the chart renders to; rendering must succeed."""
        result = self.template(values, release)
        assert result.code == 0, result.err
        return Rendered(tuple(one for one in yaml.safe_load_all(result.out) if one is not None))


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of one release."""

    objects: tuple[Object, ...]

    def all(self, kind: str) -> tuple[Object, ...]:
        """All objects of a kind."""
        return tuple(one for one in self.objects if one["kind"] == kind)

    def one(self, kind: str) -> Object:
        """The only object of a kind."""
        (found,) = self.all(kind)
        return found

    @property
    def pod(self) -> Object:
        """The controller's pod template."""
        template: Object = self.one("Deployment")["spec"]["template"]
        return template

    @property
    def controller(self) -> Object:
        """The only container."""
        (container,) = self.pod["spec"]["containers"]
        found: Object = container
        return found

    @property
    def environment(self) -> dict[str, str]:
        """The controller's environment: a value, the path of a pod's field, or SECRET/KEY for a key of a Secret."""
        return {one["name"]: _value(one) for one in self.controller["env"]}


def _value(item: Object) -> str:
    if "value" in item:
        return str(item["value"])
    source = item["valueFrom"]
    if "secretKeyRef" in source:
        return f"{source['secretKeyRef']['name']}/{source['secretKeyRef']['key']}"
    return str(source["fieldRef"]["fieldPath"])
