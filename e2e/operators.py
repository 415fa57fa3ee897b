"""Operators on a cluster of our own: their manifests as they are, their managers as processes on the control plane.

The rule: nothing of an operator is changed. Its CRDs, webhooks and conversions come from its module, and its manager is
built from it. Only what a Deployment and cert-manager would do is done here: the process, its configuration's
addresses, and the certificate of its webhooks, which the API server reaches without a Service. Its manager is an
administrator, so its roles are left out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import addresses, programs
from e2e.cluster.lab import Lab
from tests.wait import until

READY_SECONDS = 90.0
HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CERTIFICATES = Path("k8s-webhook-server/serving-certs")
"""Where controller-runtime looks for the certificate, below the folder for temporary files."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator, as its module has it."""

    name: str
    """Its manager among the programs of versions.py."""
    kustomizations: tuple[str, ...]
    """Folders of its module with its CRDs and its webhooks."""
    configuration: str
    """The file of its module with its manager's configuration."""
    settings: Mapping[str, Any]
    """What is different here: it has no other certificate manager."""
    port: int
    """Of its webhooks."""
    takes_folder: bool = True
    """Whether its configuration says where the certificate is."""
    accepted: Mapping[str, Any] = field(default_factory=dict)
    """An object that its webhooks accept when they are there."""


@contextmanager
def running(operator: Operator, lab: Lab) -> Iterator[None]:
    """The operator, until the end of the block; it is built first if it is missing."""
    _, module = programs.on_demand(operator.name)
    programs.ready([operator.name])  # among the programs of the machine
    plane, folder = lab.control_plane, lab.home / operator.name
    certificates = folder / CERTIFICATES
    certificates.mkdir(parents=True, exist_ok=True)
    plane.pki.issue(operator.name, operator.name, "system:masters", names=[addresses.CONTROL])
    for kind in ("crt", "key"):
        (certificates / f"tls.{kind}").write_bytes(plane.pki.path(f"{operator.name}.{kind}").read_bytes())
    (folder / "kubeconfig").write_text(plane.pki.kubeconfig(operator.name, f"https://{addresses.CONTROL}:6443"))
    config = yaml.safe_load((module / operator.configuration).read_text())
    (folder / "config.yaml").write_text(json.dumps(_configured(config, operator, certificates)))
    authority = base64.b64encode(plane.pki.path("ca.crt").read_bytes()).decode()
    found = [one for path in operator.kustomizations for one in _rendered(lab, module / path)]
    crds = [_reached(one, operator.port, authority) for one in found if one["kind"] == "CustomResourceDefinition"]
    hooks = [_reached(one, operator.port, authority) for one in found if one["kind"] in HOOKS]
    _apply(lab, crds)
    wait = ("wait", "--for=condition=Established", *(f"crd/{one['metadata']['name']}" for one in crds), "--timeout=5s")
    until("its CRDs", lambda: not plane.kubectl(*wait, check=False).returncode, READY_SECONDS, every=0.2)
    environment = {"TMPDIR": str(folder), "KUBECONFIG": f"{folder}/kubeconfig"}
    plane.machine.start(operator.name, f"--config={folder}/config.yaml", env=environment)
    try:
        _apply(lab, hooks)

        def answers() -> bool:
            words = ("apply", "--dry-run=server", "-f", "-")
            return not plane.kubectl(*words, text=json.dumps(operator.accepted), check=False).returncode

        until(f"the webhooks of {operator.name} (see {plane.machine.log})", answers, READY_SECONDS, every=0.5)
        yield
    finally:
        for one in hooks:
            plane.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")
        plane.machine.stop(operator.name)


def _configured(config: dict[str, Any], operator: Operator, certificates: Path) -> dict[str, Any]:
    """Its own configuration, with the addresses of a machine that has other programs."""
    return (
        config
        | {
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            "webhook": {"port": operator.port, **({"certDir": str(certificates)} if operator.takes_folder else {})},
        }
        | dict(operator.settings)
    )


def _rendered(lab: Lab, folder: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(lab.control_plane.kubectl("kustomize", str(folder)).stdout)


def _reached(one: dict[str, Any], port: int, authority: str) -> dict[str, Any]:
    """The object with webhooks that are on the control plane, instead of behind a Service."""
    conversion = one.get("spec", {}).get("conversion", {}).get("webhook")
    for hook in one.get("webhooks") or ([conversion] if conversion else []):
        path = hook["clientConfig"]["service"].get("path", "")
        url = f"https://{addresses.CONTROL}:{port}{path}"
        hook["clientConfig"] = {"url": url, "caBundle": authority}
    return one


def _apply(lab: Lab, objects: list[dict[str, Any]]) -> None:
    text = yaml.safe_dump_all(objects)
    lab.control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
