"""What a cluster is made of, and where it is kept: one folder for each set of versions, built once on a machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

GO = "1.26.8"
"""Fetched through the Go module proxy where no Go of this version or newer is installed."""

KUBERNETES = "1.36.3"
KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3@v3.7.3",
    "containerd": "github.com/containerd/containerd/v2/cmd/containerd@v2.4.2",
    "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.4.2",
    "ctr": "github.com/containerd/containerd/v2/cmd/ctr@v2.4.2",
    "crictl": "sigs.k8s.io/cri-tools/cmd/crictl@v1.36.0",
    "coredns": "github.com/coredns/coredns@v1.15.0",
    "helm": "helm.sh/helm/v4/cmd/helm@v4.3.1",
}
"""Program -> Go package and version. Kubernetes itself needs more than a line: programs.py."""

PACKAGES = (
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "debootstrap",
    "gcc",
    "iproute2",
    "iptables",
    "libc6-dev",
    "nftables",
    "runc",
)
"""Debian packages that nodes and images need."""


def cache() -> Path:
    """Where builds and images outlive a run: GANGCTL_E2E_CACHE, or gangctl-e2e in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("GANGCTL_E2E_CACHE", home / "gangctl-e2e"))


def binaries() -> Path:
    """The folder of this set of programs."""
    wanted = "\n".join([KUBERNETES, *sorted(f"{name} {package}" for name, package in PROGRAMS.items())])
    return cache() / f"k8s-{KUBERNETES}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}" / "bin"
