"""The controller of a cluster, known by its Lease."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any, Final

from gangctl.cli.errors import UserError
from gangctl.cli.output import print_err, print_out
from gangctl.cli.targets.gangjobs import checked
from gangctl.cli.targets.port import DEFAULT_LEASE
from gangctl.cli.text import clean
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import Client, NotFound

_MARGIN_SECONDS: Final = 60.0
"""Clocks may differ: only what is much too old is said."""


async def kill_leader(client: Client, lease: str) -> None:
    """Delete the pod of who holds the Lease, without any time to end. ``lease``: NAMESPACE/NAME.

    Raises:
        UserError: there is no such Lease, nobody holds it, or its holder's pod is gone.
        ClusterError: this user may not do it.
    """
    namespace, _, name = lease.partition("/")
    spec = await _lease(client, namespace, name)
    if spec is None:
        raise UserError(f"there is no Lease {name} in namespace {namespace}: name it with --controller NAMESPACE/NAME")
    holder = str(spec.get("holderIdentity") or "")
    pod = holder.partition("_")[0]
    if not pod:
        raise UserError(f"nobody holds the Lease {lease}: no controller leads now")
    print_out(clean(f"controller: pod {pod} in namespace {namespace} leads; it is deleted with no time to end"))
    try:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        await client.request("DELETE", path, body=json.dumps({"gracePeriodSeconds": 0}).encode())
    except NotFound:
        raise UserError(f"the pod {pod} that holds the Lease is gone already: another one leads soon") from None


async def warn_without_leader(client: Client) -> None:
    """Tell the user if the Lease of the usual installation was left alone. Most users may not look: nothing then."""
    namespace, _, name = DEFAULT_LEASE.partition("/")
    try:
        spec = await _lease(client, namespace, name)
    except ClusterError:
        return
    if spec is not None and (not spec.get("holderIdentity") or _is_old(spec)):
        print_err(f"no controller leads now (Lease {DEFAULT_LEASE}): it takes effect when one does")


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
