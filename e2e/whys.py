"""What `gangctl why` answers about a gang on the cluster, asked on the command line as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from e2e.clusters import Cluster
from e2e.gangs import Gang


def asked(cluster: Cluster, gang: Gang, *words: str, kubeconfig: Path | None = None) -> str:
    """What it prints. ``kubeconfig``: of another user than the cluster's administrator."""
    command = [sys.executable, "-m", "gangctl", "why", gang.name, "-n", gang.namespace, *words]
    env = cluster.env if kubeconfig is None else cluster.env | {"KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(command, env=env | {"COLUMNS": "100"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def why(cluster: Cluster, gang: Gang, *, kubeconfig: Path | None = None) -> dict[str, Any]:
    """The answer for programs."""
    return dict(json.loads(asked(cluster, gang, "-o", "json", kubeconfig=kubeconfig)))
