"""Objects as an API server stores them."""

from __future__ import annotations

from typing import Any, Final

from gangctl.api.names import pod_labels, pod_name
from gangctl.cluster.kube.projections import nodes
from gangctl.kubernetes.signals import SignalTable, default_rows

NODES: Final = nodes(SignalTable(default_rows()))

UID = "6f1f0f4e-53f8-4d55-9d0c-5d6f3d4e0001"


def gang(name: str = "g", uid: str = UID, **fields: Any) -> dict[str, Any]:
    """A GangJob of four workers."""
    template = {"spec": {"containers": [{"name": "m", "image": "i", "command": ["w"]}]}}
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "generation": 1},
        "spec": {"roles": [{"name": "worker", "replicas": 4, "template": template}]},
        **fields,
    }


def pod(member: str = "worker-0", incarnation: int = 0, **fields: Any) -> dict[str, Any]:
    """A new pod of it. ``gang``, ``uid``, ``owner`` and ``namespace`` override the defaults."""
    name, owner = fields.pop("gang", "g"), fields.pop("owner", UID)
    named = pod_name(name, member, incarnation)
    metadata = {
        "name": named,
        "namespace": fields.pop("namespace", "default"),
        "uid": fields.pop("uid", f"uid-{named}"),
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": pod_labels(name, fields.pop("label", UID), member, incarnation),
        "ownerReferences": [{"kind": "GangJob", "name": name, "uid": owner, "controller": True}],
        **fields.pop("metadata", {}),
    }
    spec = {"containers": [{"name": "m"}], **fields.pop("spec", {})}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}, **fields}


def node(name: str = "n1", ready: str = "True", **fields: Any) -> dict[str, Any]:
    """A node."""
    return {
        "metadata": {"name": name},
        "spec": fields.pop("spec", {}),
        "status": {"conditions": [{"type": "Ready", "status": ready}], **fields},
    }
