"""The addresses of a cluster. All are in 198.18.0.0/15, which is not routed, and in the cluster's own namespaces.

One link connects the cluster with the host. The two addresses of the link depend on the cluster's number, so several
clusters can run side by side.
"""

from __future__ import annotations

CONTROL = "198.18.0.1"
SERVICES = "198.19.0.0/20"
FIRST_SERVICE = "198.19.0.1"
DNS = "198.19.0.10"
PODS = "198.18.96.0/19"
BRIDGE = "bridge0"
MAX_NODES = 20
MAX_CLUSTERS = 60


def node(index: int) -> str:
    """A node's own address."""
    return f"198.18.0.{10 + index}"


def pods(index: int) -> str:
    """The subnet of a node's pods."""
    return f"198.18.{100 + index}.0/24"


def link(cluster: int) -> str:
    """The device through which the host reaches this cluster."""
    return f"gangctl-e2e{cluster}"


def link_peer(cluster: int) -> str:
    """The cluster's end of that link, until the control plane's network namespace takes it as its entrance."""
    return f"{link(cluster)}p"


def around(cluster: int) -> str:
    """The address of the host's end of the link."""
    return f"198.19.240.{4 * cluster + 1}"


def entrance(cluster: int) -> str:
    """The address of the cluster's end of the link: where kubectl finds the API server."""
    return f"198.19.240.{4 * cluster + 2}"
