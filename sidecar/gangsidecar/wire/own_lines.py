"""How a program of the pod marks the lines of its log: on a cluster, a supervisor writes into the log of its worker."""

from __future__ import annotations

SUPERVISOR_LOG_NAME = "gangctl-supervisor"
SIDECAR_LOG_NAME = "gangctl-sidecar"
