"""Settings of the controller on Kubernetes: names, images and addresses. The defaults suit a first try."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangctl.kubernetes.signals import SignalRow, default_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSettings:
    """Fixed for the life of a controller; its main program makes them from flags and environment."""

    namespace: str
    """Namespace of the controller, with its Lease, Secret and Service."""
    name: str = "gangctl"
    """Prefix of the names of its Lease, Secret and Service. Two installations in one namespace need different ones."""
    watch_namespaces: tuple[str, ...] = ()
    """The only namespaces whose gangs it manages; none = all namespaces."""
    selector: str = ""
    """Label selector of the only gangs that it manages; empty = all of these namespaces."""
    sidecar_image: str
    """Image of the containers that gangctl adds to pods."""
    sidecar_image_pull_policy: str = "IfNotPresent"
    sidecar_resources: Mapping[str, Any] = field(default_factory=dict)
    """``resources`` of the containers that gangctl adds to pods; empty = none."""
    sidecar_security_context: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``securityContext`` of these containers that replace gangctl's own."""
    sidecar_pull_secrets: tuple[str, ...] = ()
    """Names of pull secrets for the image, in the namespaces of gangs."""
    tls_secret: str = ""
    """Name of the Secret that a user fills with the hub's certificates; empty = gangctl's own, NAME-tls."""
    audience: str = "gangctl.io"
    """Audience of the sidecars' tokens. A token for another audience is refused."""
    node_signals: tuple[SignalRow, ...] = field(default_factory=default_rows)
    """Which conditions, taints and labels of nodes count, and what is done about each."""
    kueue: bool = False
    """Whether gangs that name a queue of Kueue wait for it."""
    worker_output: bool = False
    """Whether the logs of workers at fault are read, to tell what they printed last."""
    url: str
    """URL that sidecars dial: ``wss://gangctl.NAMESPACE.svc:8443/v1/connect``. A file has it, since another
    controller may take over the gang."""
    server_name: str
    """Host name in the serving certificate, whichever address is dialled: ``gangctl.NAMESPACE.svc``."""
