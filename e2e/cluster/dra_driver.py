"""A fake DRA driver: its devices do not exist, and no container gets anything. What the kubelet sees of it is real.

On one socket it speaks the kubelet's APIs of 1.36: plugin registration (pluginregistration/v1), preparing claims
(dra/v1) and the health of devices (dra-health/v1alpha1), all of k8s.io/kubelet/pkg/apis. It publishes its devices in a
ResourceSlice, with their taints, as the administrator of the cluster. Unlike a real driver, it publishes nothing anew
after a restart of the kubelet, which deletes the slices of its node.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from e2e.cluster.machines import host_path
from e2e.cluster.nodes import Node
from tests.wait import until

DRIVER = "dra.example.com"
"""Name of the driver, and of the DeviceClass of its devices."""
FOLDER = "/var/lib/kubelet/plugins_registry"
REGISTRATION, REGISTRATION_SERVICES = grpc.protos_and_services("e2e/cluster/kubelet/pluginregistration.proto")
DRA, DRA_SERVICES = grpc.protos_and_services("e2e/cluster/kubelet/dra.proto")
HEALTH, HEALTH_SERVICES = grpc.protos_and_services("e2e/cluster/kubelet/drahealth.proto")
SUPPORTED = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""The services, as a driver names them to the kubelet."""
AGAIN_SECONDS = 5.0
"""How often the health is told again: a kubelet forgets what it has not heard for 30 s."""
TAINT = "example.com/unhealthy"

Kubectl = Callable[..., str]


class Allocated(NamedTuple):
    """A device that a claim has."""

    request: str
    pool: str
    device: str


class Driver:
    """The driver on one node. Its pool has the name of the node."""

    def __init__(self, pool: str, names: Sequence[str], allocated: Callable[[str, str], list[Allocated]]) -> None:
        """``allocated``: what a claim has, by its namespace and name."""
        self.pool = pool
        self.registered = threading.Event()
        self.refusal = ""
        """Why the kubelet does not take it."""
        self.prepared: dict[str, list[Allocated]] = {}
        """UID of a claim -> its devices, from its preparation until that is undone."""
        self._allocated = allocated
        self._said = dict.fromkeys(names, "")
        """What is wrong with each device; empty = nothing."""
        self._changed = threading.Condition()

    def tell(self, name: str, wrong: str = "") -> None:
        """Say what is wrong with a device, or nothing; the kubelet is told at once."""
        with self._changed:
            self._said[name] = wrong
            self._changed.notify_all()

    def GetInfo(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """Without an endpoint, the socket of the registration is that of the driver."""
        return REGISTRATION.PluginInfo(type="DRAPlugin", name=DRIVER, supported_versions=SUPPORTED)

    def NotifyRegistrationStatus(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Remember whether the kubelet takes the driver."""
        self.refusal = request.error
        if request.plugin_registered:
            self.registered.set()
        return REGISTRATION.RegistrationStatusResponse()

    def NodePrepareResources(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Name the devices that the scheduler has given to each claim."""
        answer = DRA.NodePrepareResourcesResponse()
        for claim in request.claims:
            self.prepared[claim.uid] = self._allocated(claim.namespace, claim.name)
            answer.claims[claim.uid].devices.extend(
                DRA.Device(request_names=[one.request], pool_name=one.pool, device_name=one.device)
                for one in self.prepared[claim.uid]
            )
        return answer

    def NodeUnprepareResources(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Forget claims."""
        uids = [claim.uid for claim in request.claims]
        for uid in uids:
            self.prepared.pop(uid, None)
        return DRA.NodeUnprepareResourcesResponse(claims={uid: DRA.NodeUnprepareResourceResponse() for uid in uids})

    def NodeWatchResources(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Send all devices now, at each change, and again."""
        while context.is_active():
            with self._changed:
                now = self._list()
            yield now
            with self._changed:
                if self._list() == now:
                    self._changed.wait(AGAIN_SECONDS)

    def _list(self) -> Any:
        return HEALTH.NodeWatchResourcesResponse(
            devices=[
                {
                    "device": {"pool_name": self.pool, "device_name": name},
                    "health": HEALTH.UNHEALTHY if wrong else HEALTH.HEALTHY,
                    "message": wrong,
                }
                for name, wrong in self._said.items()
            ]
        )


@contextmanager
def serving(driver: Driver, socket: Path) -> Iterator[None]:
    """Serve the driver's three services on a socket."""
    server = grpc.server(ThreadPoolExecutor(8))
    REGISTRATION_SERVICES.add_RegistrationServicer_to_server(driver, server)
    DRA_SERVICES.add_DRAPluginServicer_to_server(driver, server)
    HEALTH_SERVICES.add_DRAResourceHealthServicer_to_server(driver, server)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        yield
    finally:
        socket.unlink(missing_ok=True)  # tells the kubelet that the driver has gone
        server.stop(grace=None).wait()


class ClaimedDevices:
    """The devices of the driver on one node; a test sets their health and their taints."""

    def __init__(self, driver: Driver, kubectl: Kubectl, names: Sequence[str]) -> None:
        self._driver = driver
        self._kubectl = kubectl
        self._effects = dict.fromkeys(names, "")

    def mark(self, name: str, wrong: str, *, effect: str = "NoSchedule") -> None:
        """Say what is wrong with a device, in the pods' status; before that, taint it so that no other pod gets it."""
        self.taint(name, effect)
        self._driver.tell(name, wrong)

    def taint(self, name: str, effect: str) -> None:
        """Taint a device; with an empty effect, remove its taint."""
        self._effects[name] = effect
        self.publish()

    def publish(self) -> None:
        """Write the ResourceSlice."""
        self._kubectl("apply", "-f", "-", stdin=json.dumps(resource_slice(self._driver.pool, self._effects)))


@contextmanager
def claimed_devices(node: Node, kubectl: Kubectl, names: Sequence[str]) -> Iterator[ClaimedDevices]:
    """Give a node a driver with these devices until the end of the block.

    Raises:
        TimeoutError: the kubelet does not take the driver, or pods that have its devices do not end with the test.
    """

    def allocated(namespace: str, name: str) -> list[Allocated]:
        return allocation(json.loads(kubectl("get", "resourceclaim", name, "-n", namespace, "-o", "json")))

    driver = Driver(node.name, names, allocated)
    with serving(driver, host_path(node.machine, FOLDER) / f"{DRIVER}.sock"):
        if not driver.registered.wait(60):
            raise TimeoutError(f"the kubelet of {node.name} does not take the driver: {driver.refusal or 'no word'}")
        found = ClaimedDevices(driver, kubectl, names)
        kubectl("apply", "-f", "-", stdin=json.dumps(device_class()))
        found.publish()
        try:
            yield found
            # Without its driver, a kubelet can't end a pod that has a claim.
            until(f"no pod of {node.name} has a claim", lambda: not driver.prepared, 90)
        finally:
            kubectl("delete", "resourceslice", _slice_name(node.name), "--ignore-not-found")


def allocation(claim: Mapping[str, Any]) -> list[Allocated]:
    """What the scheduler has given to a ResourceClaim of this driver."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [Allocated(one["request"], one["pool"], one["device"]) for one in results if one["driver"] == DRIVER]


def device_class() -> dict[str, Any]:
    """The DeviceClass of all devices of the driver."""
    selector = {"cel": {"expression": f"device.driver == {DRIVER!r}"}}
    metadata = {"name": DRIVER}
    return _resource("DeviceClass", metadata, {"selectors": [selector]})


def resource_slice(node: str, effects: Mapping[str, str]) -> dict[str, Any]:
    """The ResourceSlice of a node: device -> effect of its taint, empty for none."""
    devices = [
        {"name": name} | ({"taints": [{"key": TAINT, "effect": effect}]} if effect else {})
        for name, effect in effects.items()
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return _resource("ResourceSlice", {"name": _slice_name(node)}, spec)


def claim_template(name: str) -> dict[str, Any]:
    """A ResourceClaimTemplate for one device of the driver, by the request ``one``."""
    request = {"name": "one", "exactly": {"deviceClassName": DRIVER}}
    return _resource("ResourceClaimTemplate", {"name": name}, {"spec": {"devices": {"requests": [request]}}})


def _slice_name(node: str) -> str:
    return f"{node}-{DRIVER}"


def _resource(kind: str, metadata: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
