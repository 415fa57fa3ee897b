"""A device plugin with devices that do not exist, to test the health of devices in a pod's status.

It implements the kubelet's device plugin API v1beta1 (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from e2e.cluster.machines import host_path
from e2e.cluster.nodes import Node

API, SERVICES = grpc.protos_and_services("e2e/cluster/kubelet/deviceplugin.proto")
VERSION = "v1beta1"
FOLDER = "/var/lib/kubelet/device-plugins"
LOOK_SECONDS = 1.0
"""How often a stream checks whether its reader has gone."""


class Devices:
    """The devices of one resource on one node; a test sets their health."""

    def __init__(self, names: Sequence[str]) -> None:
        self._healthy = dict.fromkeys(names, True)
        self._changed = threading.Condition()

    def mark(self, name: str, *, healthy: bool) -> None:
        """Set the health of a device; the kubelet is told at once."""
        with self._changed:
            self._healthy[name] = healthy
            self._changed.notify_all()

    def ListAndWatch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Send all devices now and at each change."""
        sent: Any = None
        while context.is_active():
            with self._changed:
                now = self._list()
                if now == sent:
                    self._changed.wait(LOOK_SECONDS)
                    continue
            yield (sent := now)

    def GetDevicePluginOptions(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """None."""
        return API.DevicePluginOptions()

    def Allocate(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Each container gets the names of its devices in the variable FAKE_DEVICES."""
        names = (",".join(container.devices_ids) for container in request.container_requests)
        return API.AllocateResponse(container_responses=[{"envs": {"FAKE_DEVICES": each}} for each in names])

    def _list(self) -> Any:
        states = {name: "Healthy" if healthy else "Unhealthy" for name, healthy in self._healthy.items()}
        return API.ListAndWatchResponse(devices=[{"ID": name, "health": health} for name, health in states.items()])


@contextmanager
def devices(node: Node, resource: str, names: Sequence[str]) -> Iterator[Devices]:
    """Give a node these devices until the end of the block."""
    folder = host_path(node.machine, FOLDER)
    socket = folder / f"{resource.replace('/', '-')}.sock"
    found = Devices(names)
    server = grpc.server(ThreadPoolExecutor(4))
    SERVICES.add_DevicePluginServicer_to_server(found, server)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        _register(folder / "kubelet.sock", socket.name, resource)
        yield found
    finally:
        server.stop(grace=None).wait()
        socket.unlink(missing_ok=True)


def _register(kubelet: Path, endpoint: str, resource: str) -> None:
    request = API.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource)
    with grpc.insecure_channel(f"unix://{kubelet}") as channel:
        SERVICES.RegistrationStub(channel).Register(request, timeout=10)
