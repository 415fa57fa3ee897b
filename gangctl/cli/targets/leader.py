"""The leader among the controllers of a cluster, found by its Lease."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any, Final

from gangctl.cli.errors import UserError
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.printers.text import clean
from gangctl.cli.targets.gangjobs import checked
from gangctl.cli.targets.port import DEFAULT_LEASE
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import Client, NotFound

_MARGIN_SECONDS: Final = 60.0
"""Tolerance for clocks that differ between machines."""


async def kill_leader(client: Client, lease: str) -> None:
    """Delete the pod that holds the Lease, without a grace period. ``lease``: NAMESPACE/NAME.

    Raises:
        UserError: there is no such Lease, it has no holder, or the pod of the holder is gone.
        ClusterError: the user lacks permissions.
    """
    namespace, _, name = lease.partition("/")
    pod = await leading_pod(client, namespace, name)
    print_out(clean(f"controller: deleting the leading pod {pod} in namespace {namespace}, without a grace period"))
    try:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        await client.request("DELETE", path, body=json.dumps({"gracePeriodSeconds": 0}).encode())
    except NotFound:
        raise UserError(f"pod {pod}, which holds the Lease, is already gone: another controller leads soon") from None


async def leading_pod(client: Client, namespace: str, name: str) -> str:
    """The pod that holds this Lease.

    Raises:
        UserError: there is no such Lease, or it has no holder.
        ClusterError: the user lacks permissions.
    """
    spec = await _lease(client, namespace, name)
    if spec is None:
        raise UserError(
            f"there is no Lease {name} in namespace {namespace}: select the right one with --controller NAMESPACE/NAME"
        )
    pod = str(spec.get("holderIdentity") or "").partition("_")[0]
    if not pod:
        raise UserError(f"the Lease {namespace}/{name} has no holder: no controller leads now")
    return pod


async def warn_without_leader(client: Client) -> None:
    """Warn the user if no controller holds the default Lease. Without permission to read it, do nothing."""
    namespace, _, name = DEFAULT_LEASE.partition("/")
    try:
        spec = await _lease(client, namespace, name)
    except ClusterError:
        return
    if spec is not None and (not spec.get("holderIdentity") or _is_old(spec)):
        print_err(f"no controller leads now (Lease {DEFAULT_LEASE}): the gang reacts when one does")


async def _lease(client: Client, namespace: str, name: str) -> dict[str, Any] | None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{checked(namespace, 'namespace')}/leases/{checked(name, 'Lease')}"
    try:
        found: dict[str, Any] = json.loads(await client.request("GET", path))
    except NotFound:
        return None
    spec: dict[str, Any] = found.get("spec") or {}
    return spec


def _is_old(spec: dict[str, Any]) -> bool:
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime"))).timestamp()
    except ValueError:
        return False
    return time.time() > renewed + float(spec.get("leaseDurationSeconds") or 0) + _MARGIN_SECONDS
