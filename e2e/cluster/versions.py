"""The versions of a cluster's programs, and where they are kept: a machine builds each version once."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GO = "1.26.8"
"""Fetched through the Go module proxy where neither this version nor a newer one is installed."""

KUBERNETES = os.environ.get("GANGCTL_E2E_KUBERNETES") or "1.37.2"
"""`make e2e-1.36` takes 1.36.3, `make e2e-1.34` 1.34.4."""
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
    "jaeger": "github.com/jaegertracing/jaeger/cmd/all-in-one@v1.62.0",  # later ones need a module that no proxy has
}
"""Program -> Go package and version. Kubernetes needs more than a line: programs.py."""
ON_DEMAND = {
    "in-place-restart-agent": "sigs.k8s.io/jobset/cmd/in-place-restart-agent@v0.12.0",
    "jobset": "sigs.k8s.io/jobset@v0.12.0",
    "scheduler-plugins": "sigs.k8s.io/scheduler-plugins/cmd/scheduler@v0.33.5",
    "kueue": "sigs.k8s.io/kueue/cmd/kueue@v0.17.0",
    "trainer-controller-manager": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager@v2.2.0",
}
"""The same for programs that no cluster needs: they are built when a benchmark or a test asks for them."""
KEEP_TIME = ("containerd", "containerd-shim-runc-v2", "kubelet")
"""The programs of a node whose clock the cluster sees: they date what happens to containers."""
AS_THEY_ARE = ("scheduler-plugins",)
"""Programs that need the replacements of their own go.mod, which count in no other module."""

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
    """The folder for builds and images: GANGCTL_E2E_CACHE, or gangctl-e2e in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("GANGCTL_E2E_CACHE", home / "gangctl-e2e"))


def minor() -> int:
    """The minor version of Kubernetes: 37 of 1.37.2."""
    return int(KUBERNETES.split(".")[1])


@contextmanager
def lock(what: str) -> Iterator[None]:
    """Let one process at a time build this: of two test runs that start at once, the second one finds what it needs.

    A process that has the lock must not ask for it again.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def version(name: str) -> str:
    """The wanted version of a program."""
    package = (PROGRAMS | ON_DEMAND).get(name)
    return package.rpartition("@")[2].removeprefix("v") if package else KUBERNETES


def built(name: str, clock: str = "") -> Path:
    """The file of a program in the wanted version, and with that clock if it keeps time."""
    return cache() / "programs" / f"{name}-{version(name)}{clock if name in KEEP_TIME else ''}"


def binaries(clock: str = "") -> Path:
    """The folder in which all programs of these versions have their plain names."""
    wanted = " ".join(built(name).name for name in sorted((*KUBERNETES_PROGRAMS, *PROGRAMS)))
    return cache() / f"bin-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}{clock}"
