"""JobSet in the cluster of a benchmark, to compare with: its CRD, and its controller as a process of this machine.

Its webhooks are left out, so that no address of this machine is needed in the cluster: ``manifest`` has each default
that they would fill in. They would cost a JobSet some milliseconds more.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import programs
from e2e.cluster.pki import PKI
from e2e.clusters import Cluster
from tests.ports import free_port
from tests.wait import until

CRD = "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
JOB = "workers"
"""The only replicated job."""
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where a pod of a JobSet, as one of an Indexed Job, finds its rank."""


@contextmanager
def running(cluster: Cluster) -> Iterator[None]:
    """JobSet's controller manages the cluster until the end of the block; it is built first if it is missing."""
    program, module = programs.on_demand("jobset")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gangctl-bench-jobset-")))
        cluster.kubectl("apply", "--server-side", "-f", str(module / CRD))
        stack.callback(cluster.kubectl, "delete", "-f", str(module / CRD), "--wait=false")
        cluster.watch("crd/jobsets.jobset.x-k8s.io", holds=_established)
        pki = PKI(folder)
        pki.prepare()
        pki.issue("tls", "localhost")
        config = folder / "config.json"
        config.write_text(json.dumps(_config(folder, health := free_port())))
        with (folder / "log").open("w") as log:
            command = [str(program), "--config", str(config)]
            process = subprocess.Popen(command, env=cluster.env, stdout=log, stderr=log)
        stack.callback(_stop, process)

        def ready() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", health)) == 0

        until("JobSet's controller listens", ready, seconds=60)
        yield


def _established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _config(folder: Path, health: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": free_port(), "host": "127.0.0.1", "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def manifest(name: str, members: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    """A JobSet of one Indexed Job. Rank 0 is reached as NAME-workers-0-0.NAME."""
    job = {
        "completions": members,
        "parallelism": members,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": dict(pod)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "successPolicy": {"operator": "All"},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [{"name": JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }
