"""What the Kubernetes side has to be told: names, images and addresses. No field has to be changed for a first try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSettings:
    """Fixed for the life of a controller; made from flags and environment by its main program."""

    namespace: str
    """The controller's own: its Lease, Secret and Service are here."""
    name: str = "gangctl"
    """What the names of its Lease, Secret and Service begin with: two installations in one namespace differ in it."""
    watch_namespace: str = ""
    """The only namespace whose gangs it looks after; empty = all."""
    sidecar_image: str
    """The image of gangctl's own containers in the pods."""
    sidecar_image_pull_policy: str = "IfNotPresent"
    sidecar_resources: Mapping[str, Any] = field(default_factory=dict)
    """As a container's ``resources``: of gangctl's own containers. Empty = none are set."""
    audience: str = "gangctl.io"
    """Whom the pods' tokens are meant for: a token for anybody else says nothing here."""
    url: str
    """What sidecars dial: ``wss://gangctl.NAMESPACE.svc:8443/v1/connect``."""
    server_name: str
    """The host name in the serving certificate, whatever address is dialled: ``gangctl.NAMESPACE.svc``."""
