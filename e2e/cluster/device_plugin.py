"""A device plugin with devices that do not exist, to test the health of devices in a pod's status.

It implements the kubelet's device plugin API v1beta1 (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from e2e.cluster.machines import host_path
from e2e.cluster.nodes import Node
from e2e.cluster.protobuf import field, parts

VERSION = "v1beta1"
SERVICE = f"{VERSION}.DevicePlugin"
REGISTER = f"/{VERSION}.Registration/Register"
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

    def watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """ListAndWatch: send all devices now and at each change."""
        sent: bytes | None = None
        while context.is_active():
            with self._changed:
                now = self._list()
                if now == sent:
                    self._changed.wait(LOOK_SECONDS)
                    continue
            yield (sent := now)

    def options(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        """GetDevicePluginOptions: none."""
        return b""

    def allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """Allocate: each container gets the names of its devices in the variable FAKE_DEVICES."""
        answers = []
        for container in parts(request, 1):
            names = ",".join(name.decode() for name in parts(container, 1))
            answers.append(field(1, field(1, field(1, "FAKE_DEVICES") + field(2, names))))
        return b"".join(answers)

    def _list(self) -> bytes:
        return b"".join(
            field(1, field(1, name) + field(2, "Healthy" if healthy else "Unhealthy"))
            for name, healthy in self._healthy.items()
        )


@contextmanager
def devices(node: Node, resource: str, names: Sequence[str]) -> Iterator[Devices]:
    """Give a node these devices until the end of the block."""
    folder = host_path(node.machine, FOLDER)
    socket = folder / f"{resource.replace('/', '-')}.sock"
    found = Devices(names)
    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(found.watch),
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(found.options),
        "Allocate": grpc.unary_unary_rpc_method_handler(found.allocate),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        _register(folder / "kubelet.sock", socket.name, resource)
        yield found
    finally:
        server.stop(grace=None).wait()
        socket.unlink(missing_ok=True)


def _register(kubelet: Path, endpoint: str, resource: str) -> None:
    request = field(1, VERSION) + field(2, endpoint) + field(3, resource)
    with grpc.insecure_channel(f"unix://{kubelet}") as channel:
        channel.unary_unary(REGISTER)(request, timeout=10)
