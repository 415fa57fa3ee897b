"""The controller follows a Secret that a user (or cert-manager) fills, and gangs train on through its rotation."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.api_proxy import ApiProxy
from e2e.cluster import addresses
from e2e.cluster.lab import Lab
from e2e.controllers import NAME, NAMESPACE, Controller, LocalControllers
from e2e.gangs import Gang, Kubectl, sleepers
from e2e.test_controller_faults import assert_restarts
from e2e.test_relays import chosen, three
from gangctl.cluster.kube.certificates import CertificateBundle, rotate_bundle
from tests.wait import until_async

pytestmark = pytest.mark.nightly

SECRET = f"{NAME}-tls"
"""The only Secret that the chart's service account may read here."""
HOST = f"{NAME}.{NAMESPACE}.svc"
PROVIDED = {"GANGCTL_TLS_SECRET": SECRET}
FOLLOWED_SECONDS = 150.0
"""The controller reads the Secret once a minute."""


def renewed(bundle: CertificateBundle) -> CertificateBundle:
    """A new certificate of the same authority, or of a new one."""
    return rotate_bundle(replace(bundle, chain=b"", key=b""), (HOST,), datetime.now(UTC))[0]


@pytest.fixture
def fill(kubectl: Kubectl, local_controllers: LocalControllers) -> Iterator[Callable[[CertificateBundle], None]]:  # noqa: ARG001 - they take the place of those that make their own Secret
    """Store a bundle as cert-manager does: without the authority's key, and without gangctl's label."""

    def do(bundle: CertificateBundle) -> None:
        data = {"ca.crt": bundle.ca, "tls.crt": bundle.chain, "tls.key": bundle.key}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "data": {name: base64.b64encode(one).decode() for name, one in data.items()},
        }
        kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(secret))

    kubectl("delete", "secret", SECRET, "-n", NAMESPACE, "--ignore-not-found")
    yield do
    kubectl("delete", "secret", SECRET, "-n", NAMESPACE, "--ignore-not-found")


@pytest.fixture
def served(lab: Lab) -> Callable[[Controller, CertificateBundle], bytes]:
    """The certificate that a controller shows to a client that trusts the bundle's authority."""

    def do(controller: Controller, bundle: CertificateBundle) -> bytes:
        context = ssl.create_default_context(cadata=bundle.ca.decode())
        address = addresses.entrance(lab.control_plane.number), controller.port
        with (
            socket.create_connection(address, 10) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secure,
        ):
            return secure.getpeercert(binary_form=True) or b""

    return do


async def test_a_rotated_certificate_is_served_soon_and_a_gang_goes_on(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    fill: Callable[[CertificateBundle], None],
    served: Callable[[Controller, CertificateBundle], bytes],
    submit: Callable[[dict[str, Any]], Gang],
    shared_dir: Path,
) -> None:
    bundle = renewed(CertificateBundle())
    await asyncio.to_thread(fill, bundle)
    first = await local_controllers.start("first", api_proxy.url, **PROVIDED)
    gang = await asyncio.to_thread(submit, sleepers("trusting", replicas=2, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    before = await asyncio.to_thread(served, first, bundle)
    await asyncio.to_thread(fill, renewed(bundle))

    async def is_new() -> bool:
        return await asyncio.to_thread(served, first, bundle) != before

    await until_async("the new certificate is served", is_new, FOLLOWED_SECONDS, every=1.0)
    # The sidecars connect again, now with the new certificate.
    first.kill()
    await local_controllers.start("second", api_proxy.url, **PROVIDED)
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    await asyncio.to_thread(gang.runs, 2)
    assert await asyncio.to_thread(gang.uids) == uids
    writes = {call.method for call in api_proxy.calls if "/secrets" in call.path}
    assert writes == {"GET"}


async def test_relays_follow_a_new_authority_and_link_with_the_next_leader(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    fill: Callable[[CertificateBundle], None],
    served: Callable[[Controller, CertificateBundle], bytes],
    submit: Callable[[dict[str, Any]], Gang],
    shared_dir: Path,
) -> None:
    old, new = renewed(CertificateBundle()), renewed(CertificateBundle())
    await asyncio.to_thread(fill, old)
    replicas = await three(local_controllers, api_proxy.url, **PROVIDED)
    gang = await asyncio.to_thread(submit, sleepers("relayed", replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    before = {await asyncio.to_thread(served, one, old) for one in replicas}
    both = replace(new, ca=new.ca + old.ca)
    await asyncio.to_thread(fill, both)

    async def all_are_new() -> bool:
        now = {await asyncio.to_thread(served, one, both) for one in replicas}
        return not now & before

    await until_async("the new certificate is served", all_are_new, FOLLOWED_SECONDS, every=1.0)
    chosen(local_controllers, leads=True).kill()
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    await assert_restarts(gang, shared_dir, uids)
