"""The fake DRA driver speaks the kubelet's protocol, to a real gRPC client with the official protobuf. No cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from e2e.cluster import dra_driver
from e2e.cluster.dra_driver import Allocated, ClaimedDevices, Driver, serving
from tests.wait import until

pytestmark = pytest.mark.nightly

FIELD = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "string": FIELD.TYPE_STRING,
    "bool": FIELD.TYPE_BOOL,
    "int64": FIELD.TYPE_INT64,
    "enum": FIELD.TYPE_INT32,  # the same on the wire
}
MESSAGES = {
    "InfoRequest": "",
    "PluginInfo": "string type, string name, string endpoint, repeated string supported_versions",
    "RegistrationStatus": "bool plugin_registered, string error",
    "RegistrationStatusResponse": "",
    "Claim": "string namespace, string uid, string name",
    "NodePrepareResourcesRequest": "repeated Claim claims",
    "Device": "repeated string request_names, string pool_name, string device_name, repeated string cdi_device_ids",
    "NodePrepareResourceResponse": "repeated Device devices, string error",
    "PrepareEntry": "string key, NodePrepareResourceResponse value",
    "NodePrepareResourcesResponse": "repeated PrepareEntry claims",
    "NodeUnprepareResourcesRequest": "repeated Claim claims",
    "NodeUnprepareResourceResponse": "string error",
    "UnprepareEntry": "string key, NodeUnprepareResourceResponse value",
    "NodeUnprepareResourcesResponse": "repeated UnprepareEntry claims",
    "NodeWatchResourcesRequest": "",
    "DeviceIdentifier": "string pool_name, string device_name",
    "DeviceHealth": "DeviceIdentifier device, enum health, int64 last_updated_time, "
    "int64 health_check_timeout_seconds, string message",
    "NodeWatchResourcesResponse": "repeated DeviceHealth devices",
}
"""The messages of k8s.io/kubelet v0.36.3 under pkg/apis; their fields are numbered from 1. An Entry is one of a map."""
POOL = "node-1"


def official() -> dict[str, Any]:
    """Name of a message -> its class in the official protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="kubelet.proto", package="test", syntax="proto3")
    for name, fields in MESSAGES.items():
        made = file.message_type.add(name=name)
        for number, written in enumerate(fields.split(", ") if fields else [], 1):
            *repeated, kind, label = written.split()
            one = made.field.add(name=label, number=number)
            one.label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
            one.type = KINDS.get(kind, FIELD.TYPE_MESSAGE)
            if kind not in KINDS:
                one.type_name = f".test.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{name}")) for name in MESSAGES}


OFFICIAL = official()


class Kubelet:
    """Asks the driver what a kubelet asks."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def ask(self, service: str, method: str, request: str, answer: str, **fields: Any) -> Any:
        """Call a method, with the fields of its request."""
        call = self.channel.unary_unary(f"/{service}/{method}", **_codec(request, answer))
        return call(OFFICIAL[request](**fields), timeout=20)

    def claims(self, verb: str, *claims: dict[str, str]) -> Any:
        """Prepare or Unprepare claims: UID -> the driver's answer."""
        names = (f"Node{verb}Resources", f"Node{verb}ResourcesRequest", f"Node{verb}ResourcesResponse")
        found = self.ask("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", *names, claims=list(claims))
        return {entry.key: entry.value for entry in found.claims}

    def watch(self) -> Iterator[Any]:
        """The answers to NodeWatchResources."""
        request, answer = "NodeWatchResourcesRequest", "NodeWatchResourcesResponse"
        call = self.channel.unary_stream("/v1alpha1.DRAResourceHealth/NodeWatchResources", **_codec(request, answer))
        yield from call(OFFICIAL[request](), timeout=60)


def _codec(request: str, answer: str) -> dict[str, Any]:
    return {
        "request_serializer": OFFICIAL[request].SerializeToString,
        "response_deserializer": OFFICIAL[answer].FromString,
    }


def allocated(namespace: str, name: str) -> list[Allocated]:
    return [Allocated("one", POOL, f"{namespace}-{name}-{at}") for at in range(2)]


@pytest.fixture
def driver() -> Driver:
    return Driver(POOL, ["a", "b"], allocated)


@pytest.fixture
def kubelet(driver: Driver, tmp_path: Path) -> Iterator[Kubelet]:
    socket = tmp_path / "dra.sock"
    with serving(driver, socket), grpc.insecure_channel(f"unix://{socket}") as channel:
        yield Kubelet(channel)
    assert not socket.exists(), "so the kubelet knows that it has gone"


def test_it_registers_as_a_driver_with_health(kubelet: Kubelet, driver: Driver) -> None:
    service = "pluginregistration.Registration"
    info = kubelet.ask(service, "GetInfo", "InfoRequest", "PluginInfo")
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "dra.example.com", "")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
    words = ("NotifyRegistrationStatus", "RegistrationStatus", "RegistrationStatusResponse")
    kubelet.ask(service, *words, plugin_registered=False, error="not you")
    assert (driver.registered.is_set(), driver.refusal) == (False, "not you")
    kubelet.ask(service, *words, plugin_registered=True)
    assert (driver.registered.is_set(), driver.refusal) == (True, "")


def test_it_prepares_what_the_scheduler_gave_until_that_is_undone(kubelet: Kubelet, driver: Driver) -> None:
    first, second = ({"namespace": "ns", "uid": f"uid-{name}", "name": name} for name in ("x", "y"))
    found = kubelet.claims("Prepare", first, second)
    assert set(found) == set(driver.prepared) == {"uid-x", "uid-y"}
    devices = [(list(one.request_names), one.pool_name, one.device_name) for one in found["uid-y"].devices]
    assert devices == [(["one"], POOL, "ns-y-0"), (["one"], POOL, "ns-y-1")]
    assert not found["uid-y"].error
    undone = kubelet.claims("Unprepare", first, {"namespace": "ns", "uid": "unknown", "name": "z"})
    assert {uid: one.error for uid, one in undone.items()} == {"uid-x": "", "unknown": ""}
    assert set(driver.prepared) == {"uid-y"}


def test_it_tells_the_health_of_all_devices_at_once_at_each_change_and_again(
    kubelet: Kubelet, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra_driver, "AGAIN_SECONDS", 0.2)
    seen: list[dict[str, tuple[int, str]]] = []

    def listen() -> None:
        for answer in kubelet.watch():
            assert {one.device.pool_name for one in answer.devices} == {POOL}
            seen.append({one.device.device_name: (one.health, one.message) for one in answer.devices})
            if len(seen) > 1 and seen[-1] == well and sick in seen:
                return

    well = {"a": (1, ""), "b": (1, "")}
    sick = {"a": (1, ""), "b": (2, "too many ECC errors")}
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    until("it is told, and told again", lambda: len(seen) > 1)
    assert seen[:2] == [well, well]
    driver.tell("b", "too many ECC errors")
    until("the change is told", lambda: seen[-1] == sick)
    driver.tell("b")
    listener.join(20)
    assert seen[-1] == well


def test_a_device_is_tainted_in_its_slice_before_its_health_is_told(driver: Driver) -> None:
    written: list[dict[str, Any]] = []

    def kubectl(*_words: str, stdin: str) -> str:
        written.append(json.loads(stdin))
        return ""

    found = ClaimedDevices(driver, kubectl, ["a", "b"])
    found.mark("b", "too many ECC errors")
    [made] = written
    assert (made["kind"], made["apiVersion"]) == ("ResourceSlice", "resource.k8s.io/v1")
    assert made["spec"]["nodeName"] == made["spec"]["pool"]["name"] == POOL
    taint = {"key": "example.com/unhealthy", "effect": "NoSchedule"}
    assert made["spec"]["devices"] == [{"name": "a"}, {"name": "b", "taints": [taint]}]
    found.taint("b", "")
    assert written[-1]["spec"]["devices"] == [{"name": "a"}, {"name": "b"}]


def test_a_claim_has_what_the_scheduler_wrote_for_this_driver() -> None:
    assert dra_driver.allocation({"status": {}}) == []
    results = [
        {"request": "one", "driver": driver, "pool": POOL, "device": "a"} for driver in ("other", dra_driver.DRIVER)
    ]
    claim = {"status": {"allocation": {"devices": {"results": results}}}}
    assert dra_driver.allocation(claim) == [Allocated("one", POOL, "a")]
