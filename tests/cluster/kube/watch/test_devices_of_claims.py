from __future__ import annotations

import json
from typing import Any

import pytest

from gangctl.cluster.kube.projections import PODS
from gangctl.core.facts.world import Device, Pod
from tests.cluster.kube.objects import pod

NIC = {"name": "example.com/nic", "resources": [{"resourceID": "nic-0", "health": "Healthy"}]}
SICK = {"resourceID": "dra.example.com/node-a/gpu-3", "health": "Unhealthy", "message": "too many ECC errors"}
WELL = {"resourceID": "example.com/gpu=gpu-2", "health": "Healthy"}
"""The kubelet of 1.36 names a device by DRIVER/POOL/DEVICE, or by the first CDI name that it has."""


def claim(*devices: dict[str, str]) -> dict[str, Any]:
    return {"name": "claim:gpu/one", "resources": list(devices)}


def read(*allocated: dict[str, Any]) -> Pod:
    status = {"containerStatuses": [{"name": "m", "allocatedResourcesStatus": list(allocated)}]}
    spec = {"nodeName": "node-a", "containers": [{"name": "m"}]}
    found = PODS.item(json.dumps(pod("worker-3", 2, spec=spec, status=status)).encode())
    assert found is not None
    return found.pod


def test_devices_of_claims_are_read_in_one_order_though_a_kubelet_lists_them_in_any() -> None:
    found = read(NIC, claim(SICK, WELL))
    assert found.devices == (
        Device("claim:gpu/one", "dra.example.com/node-a/gpu-3", "Unhealthy"),
        Device("claim:gpu/one", "example.com/gpu=gpu-2", "Healthy"),
        Device("example.com/nic", "nic-0", "Healthy"),
    )
    assert [one.is_claimed for one in found.devices] == [True, True, False]
    assert read(claim(WELL, SICK), NIC) == found


def test_a_sick_device_is_told_with_the_words_of_its_driver() -> None:
    told = "device dra.example.com/node-a/gpu-3 (claim:gpu/one) is unhealthy"
    assert read(claim(SICK)).devices[0].described() == f"{told}: too many ECC errors"
    assert read(claim({key: SICK[key] for key in ("resourceID", "health")})).devices[0].described() == told


@pytest.mark.parametrize("text", ["one more error", "", "x" * 2000])
def test_other_words_are_no_change_and_long_ones_are_cut(text: str) -> None:
    found = read(claim(SICK | {"message": text}))
    assert found == read(claim(SICK))
    assert found.devices[0].message == text[:300]
