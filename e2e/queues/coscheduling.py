"""The scheduler of scheduler-plugins on a cluster of our own: a second scheduler, with the plugin Coscheduling.

It is built from its module as it is, and runs as a process on the control plane, beside kube-scheduler. Its CRD and its
configuration are those of its manifests, with the name that its chart gives to a second scheduler.
Pods that name it wait until it has started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from e2e.cluster import addresses, programs
from e2e.cluster.lab import Lab

NAME = "scheduler-plugins"
SCHEDULER = "scheduler-plugins-scheduler"
CRD = "podgroups.scheduling.x-k8s.io"
PORT = 10260


@contextmanager
def coscheduling(lab: Lab) -> Iterator[None]:
    """The scheduler, until the end of the block."""
    _, module = programs.on_demand(NAME)
    programs.ready([NAME])
    plane, manifests = lab.control_plane, module / "manifests" / "coscheduling"
    plane.kubectl("apply", "--server-side", "-f", str(manifests / "crd.yaml"))
    plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    folder = lab.home / NAME
    folder.mkdir(exist_ok=True)
    plane.pki.issue(NAME, NAME, "system:masters")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(plane.pki.kubeconfig(NAME, f"https://{addresses.CONTROL}:6443"))
    config = yaml.safe_load((manifests / "scheduler-config.yaml").read_text())
    config["clientConnection"]["kubeconfig"] = str(kubeconfig)
    config["profiles"][0]["schedulerName"] = SCHEDULER
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    plane.machine.start(
        NAME,
        *(f"--{kind}-kubeconfig={kubeconfig}" for kind in ("authentication", "authorization")),
        *(f"--config={folder}/config.yaml", "--bind-address=127.0.0.1", f"--secure-port={PORT}"),
    )
    try:
        yield
    finally:
        plane.machine.stop(NAME)
        plane.kubectl("delete", f"crd/{CRD}", "--ignore-not-found")
