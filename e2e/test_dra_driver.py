"""The fake devices speak the kubelet's protocols, to a real gRPC client. No cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.cluster import device_plugin, dra_driver
from e2e.cluster.dra_driver import DRA, HEALTH, REGISTRATION, Allocated, ClaimedDevices, Driver, serving
from tests.wait import until

pytestmark = pytest.mark.nightly

POOL = "node-1"


class Kubelet:
    """Asks the driver what a kubelet asks."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.registration = dra_driver.REGISTRATION_SERVICES.RegistrationStub(channel)
        self.plugin = dra_driver.DRA_SERVICES.DRAPluginStub(channel)
        self.health = dra_driver.HEALTH_SERVICES.DRAResourceHealthStub(channel)


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


def test_every_message_has_the_bytes_that_a_kubelet_of_version_1_36_took_and_sent() -> None:
    found = device_plugin.Devices(["a", "b"])
    found.mark("b", healthy=False)
    assert found._list().SerializeToString() == b"\n\x0c\n\x01a\x12\x07Healthy\n\x0e\n\x01b\x12\tUnhealthy"  # noqa: SLF001
    asked = device_plugin.API.AllocateRequest.FromString(b"\n\x06\n\x01a\n\x01b\n\x03\n\x01c")
    each = b"\n\x15\n\x13\n\x0cFAKE_DEVICES\x12\x03a,b\n\x13\n\x11\n\x0cFAKE_DEVICES\x12\x01c"
    assert found.Allocate(asked, None).SerializeToString() == each
    registered = device_plugin.API.RegisterRequest(version="v1beta1", endpoint="x.sock", resource_name="example.com/x")
    assert registered.SerializeToString() == b"\n\x07v1beta1\x12\x06x.sock\x1a\rexample.com/x"
    driver = Driver("node-1", ["a", "b"], allocated)
    driver.tell("b", "ECC")
    sent = b"\n\x0f\n\x0b\n\x06node-1\x12\x01a\x10\x01\n\x14\n\x0b\n\x06node-1\x12\x01b\x10\x02*\x03ECC"
    assert driver._list().SerializeToString() == sent  # noqa: SLF001
    info = b'\n\tDRAPlugin\x12\x0fdra.example.com"\x0cv1.DRAPlugin"\x1av1alpha1.DRAResourceHealth'
    assert driver.GetInfo(None, None).SerializeToString() == info
    claim = b"\n\x0c\n\x02ns\x12\x03uid\x1a\x01x"
    devices = b"\n\x15\n\x03one\x12\x06node-1\x1a\x06ns-x-0\n\x15\n\x03one\x12\x06node-1\x1a\x06ns-x-1"
    prepared = driver.NodePrepareResources(DRA.NodePrepareResourcesRequest.FromString(claim), None)
    assert prepared.SerializeToString() == b"\n5\n\x03uid\x12." + devices
    undone = driver.NodeUnprepareResources(DRA.NodeUnprepareResourcesRequest.FromString(claim), None)
    assert undone.SerializeToString() == b"\n\x07\n\x03uid\x12\x00"


def test_it_registers_as_a_driver_with_health(kubelet: Kubelet, driver: Driver) -> None:
    info = kubelet.registration.GetInfo(REGISTRATION.InfoRequest(), timeout=20)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "dra.example.com", "")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
    notify, status = kubelet.registration.NotifyRegistrationStatus, REGISTRATION.RegistrationStatus
    notify(status(plugin_registered=False, error="not you"), timeout=20)
    assert (driver.registered.is_set(), driver.refusal) == (False, "not you")
    notify(status(plugin_registered=True), timeout=20)
    assert (driver.registered.is_set(), driver.refusal) == (True, "")


def test_it_prepares_what_the_scheduler_gave_until_that_is_undone(kubelet: Kubelet, driver: Driver) -> None:
    first, second = ({"namespace": "ns", "uid": f"uid-{name}", "name": name} for name in ("x", "y"))
    found = kubelet.plugin.NodePrepareResources(
        DRA.NodePrepareResourcesRequest(claims=[first, second]), timeout=20
    ).claims
    assert set(found) == set(driver.prepared) == {"uid-x", "uid-y"}
    devices = [(list(one.request_names), one.pool_name, one.device_name) for one in found["uid-y"].devices]
    assert devices == [(["one"], POOL, "ns-y-0"), (["one"], POOL, "ns-y-1")]
    assert not found["uid-y"].error
    asked = DRA.NodeUnprepareResourcesRequest(claims=[first, {"namespace": "ns", "uid": "unknown", "name": "z"}])
    undone = kubelet.plugin.NodeUnprepareResources(asked, timeout=20).claims
    assert {uid: one.error for uid, one in undone.items()} == {"uid-x": "", "unknown": ""}
    assert set(driver.prepared) == {"uid-y"}


def test_it_tells_the_health_of_all_devices_at_once_at_each_change_and_again(
    kubelet: Kubelet, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra_driver, "AGAIN_SECONDS", 0.2)
    seen: list[dict[str, tuple[int, str]]] = []

    def listen() -> None:
        for answer in kubelet.health.NodeWatchResources(HEALTH.NodeWatchResourcesRequest(), timeout=60):
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
