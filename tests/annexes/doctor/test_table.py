"""The table of vendors: each entry has a source, and no two contradict each other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from gangctl.annexes.doctor.table import ComponentKind, Labels, PodSelector, Sign, Vendor, vendor_of, vendors
from gangctl.kubernetes.objects import PodContainer, WholePod


def entries(part: Any) -> list[dict[str, Any]]:
    """All entries below a value that are no mere groups."""
    match part:
        case {"source": _}:
            return [part, *(one for value in part.values() for one in entries(value))]
        case dict():
            return [one for value in part.values() for one in entries(value)]
        case list() | tuple():
            return [one for value in part for one in entries(value)]
        case _:
            return []


@pytest.mark.parametrize("vendor", vendors(), ids=lambda one: one.name)
def test_every_entry_names_a_source_that_can_be_looked_up(vendor: Vendor) -> None:
    found = entries(vendor.model_dump())
    assert len(found) > 2
    for one in found:
        assert ", " in one["source"] or "documentation" in one["source"], one


@pytest.mark.parametrize("kind", [Sign, PodSelector, Labels])
def test_an_entry_without_a_source_is_refused(kind: Any) -> None:
    with pytest.raises(ValidationError, match="source"):
        kind.model_validate({"label": "a", "labels": ["a"]})


def test_no_resource_has_two_vendors_and_no_selector_two_components() -> None:
    assert not [name for name, count in Counter(one.name for one in vendors()).items() if count > 1]
    for vendor in vendors():
        for resource in vendor.resources:
            assert vendor_of(resource.replace("*", "1g.5gb")) is vendor
    selectors = [
        (frozenset(row.labels.items()), row.container)
        for vendor in vendors()
        for component in vendor.components
        for row in component.pods
    ]
    assert not [one for one, count in Counter(selectors).items() if count > 1]


def test_every_vendor_has_a_device_plugin() -> None:
    assert all(vendor.component(ComponentKind.DEVICE_PLUGIN) is not None for vendor in vendors())


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("nvidia.com/gpu", "nvidia"),
        ("nvidia.com/mig-3g.40gb", "nvidia"),
        ("amd.com/gpu", "amd"),
        ("amd.com/cpx_nps4", "amd"),
        ("gpu.intel.com/xe", "intel"),
        ("aws.amazon.com/neuroncore", "neuron"),
        ("google.com/tpu", "tpu"),
    ],
)
def test_resources_are_known_by_their_vendor(resource: str, name: str) -> None:
    found = vendor_of(resource)
    assert found is not None
    assert found.name == name


def test_other_resources_have_no_vendor() -> None:
    assert vendor_of("example.com/accelerator") is None
    assert vendor_of("nvidia.com/gpu-memory") is None


def test_components_that_share_labels_are_told_apart_by_a_container() -> None:
    """NVIDIA's Helm chart gives plugin and feature discovery the same labels."""
    nvidia = vendors()[0]
    labels = {"app.kubernetes.io/name": "nvidia-device-plugin"}
    for container, kind in (
        ("nvidia-device-plugin-ctr", ComponentKind.DEVICE_PLUGIN),
        ("gpu-feature-discovery-ctr", ComponentKind.FEATURE_DISCOVERY),
    ):
        pod = WholePod(namespace="gpu", name="any", labels=labels, containers=(PodContainer(name=container),))
        assert [one.kind for one in nvidia.components if one.selects(pod)] == [kind]
