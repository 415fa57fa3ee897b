"""A device plugin with devices that do not exist, to test the health of devices in a pod's status.

It implements the kubelet's device plugin API v1beta1 (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto). The few
messages are encoded and decoded here by hand: protobuf's wire format needs three lines for what they contain.
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
        for container in _fields(request):
            names = ",".join(name.decode() for name in _fields(container))
            answers.append(_field(1, _field(1, _field(1, "FAKE_DEVICES") + _field(2, names))))
        return b"".join(answers)

    def _list(self) -> bytes:
        return b"".join(
            _field(1, _field(1, name) + _field(2, "Healthy" if healthy else "Unhealthy"))
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
    request = _field(1, VERSION) + _field(2, endpoint) + _field(3, resource)
    with grpc.insecure_channel(f"unix://{kubelet}") as channel:
        channel.unary_unary(REGISTER)(request, timeout=10)


def _field(number: int, value: str | bytes) -> bytes:
    """One field of a message: a string, or a message in it."""
    data = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    """A varint: seven bits a byte, the lowest bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(message: bytes) -> Iterator[bytes]:
    """The values of a message whose fields are all strings or messages."""
    at = 0
    while at < len(message):
        _, at = _read_number(message, at)
        length, at = _read_number(message, at)
        yield message[at : at + length]
        at += length


def _read_number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, at
        shift += 7
