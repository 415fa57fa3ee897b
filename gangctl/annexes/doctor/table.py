"""The table of vendors: what each runs on a node and writes at it. ``vendors.yaml`` has the rows with their sources."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from gangctl.kubernetes.objects import WholePod

NonEmptyText = Annotated[str, Field(min_length=1)]
ANY: Final = "*"


class ComponentKind(StrEnum):
    """What a vendor's pod on a node is for."""

    DRIVER = "Driver"
    CONTAINER_TOOLKIT = "ContainerToolkit"
    DEVICE_PLUGIN = "DevicePlugin"
    FEATURE_DISCOVERY = "FeatureDiscovery"
    EXPORTER = "Exporter"
    PARTITION_MANAGER = "PartitionManager"
    VALIDATOR = "Validator"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    source: NonEmptyText


class Sign(_Part):
    """A label which says that a node has devices; without a value, any value."""

    label: NonEmptyText
    value: str = ANY

    def on(self, labels: Mapping[str, str]) -> bool:
        return self.label in labels and self.value in {ANY, labels[self.label]}


class PodSelector(_Part):
    """Labels of a vendor's pods, and the name of a container if several components share the labels."""

    labels: Annotated[dict[str, str], Field(min_length=1)]
    container: str = ""

    def selects(self, pod: WholePod) -> bool:
        """Return whether a pod, or the template of a DaemonSet, is one of these."""
        found = all(key in pod.labels and value in {ANY, pod.labels[key]} for key, value in self.labels.items())
        return found and (not self.container or any(one.name == self.container for one in pod.containers))


class Component(BaseModel):
    """Pods that a vendor runs on each node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ComponentKind
    pods: Annotated[tuple[PodSelector, ...], Field(min_length=1)]

    def selects(self, pod: WholePod) -> bool:
        """Return whether a pod, or the template of a DaemonSet, is one of these."""
        return any(one.selects(pod) for one in self.pods)


class Labels(_Part):
    """Labels that are joined by dots where they make a version."""

    labels: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)]

    def join_values(self, labels: Mapping[str, str]) -> str:
        """Join the labels to a version; empty if the first label is not there."""
        return ".".join(value for key in self.labels if (value := labels.get(key))) if self.labels[0] in labels else ""


class RuntimeClass(_Part):
    """A RuntimeClass of the vendor."""

    name: NonEmptyText


class Upgrade(_Part):
    """The label with the state of an upgrade of the driver."""

    label: NonEmptyText
    failed: tuple[NonEmptyText, ...]


class Partitions(_Part):
    """How a node's devices are cut into parts."""

    title: NonEmptyText
    config: NonEmptyText
    state: NonEmptyText
    good: tuple[NonEmptyText, ...]
    failed: tuple[NonEmptyText, ...]


class Shared(_Part):
    """A label which says that a device is not given to one pod alone, unless it has one of the values ``whole``."""

    label: NonEmptyText
    whole: tuple[NonEmptyText, ...]


class Files(_Part):
    """Device files of a container with a device."""

    glob: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)]


class Vendor(_Part):
    """A vendor of devices."""

    name: NonEmptyText
    title: NonEmptyText
    resources: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)]
    signs: tuple[Sign, ...] = ()
    components: tuple[Component, ...] = ()
    runtime_class: RuntimeClass | None = None
    driver: tuple[Labels, ...] = ()
    upgrade: Upgrade | None = None
    cuda: tuple[Labels, ...] = ()
    features: Labels | None = None
    partitions: Partitions | None = None
    shared: tuple[Shared, ...] = ()
    files: Files

    def has(self, resource: str) -> bool:
        return any(fnmatchcase(resource, pattern) for pattern in self.resources)

    def component(self, kind: ComponentKind) -> Component | None:
        """Its pods of this kind; None if the table knows none."""
        return next((one for one in self.components if one.kind is kind), None)

    def is_shared(self, labels: Mapping[str, str]) -> bool:
        """Return whether the node with these labels gives a device, or a part of one, to several pods."""
        return any(labels.get(one.label, one.whole[0]) not in one.whole for one in self.shared)


_VENDORS: Final = TypeAdapter(tuple[Vendor, ...])


@cache
def vendors() -> tuple[Vendor, ...]:
    """The rows of the package."""
    return _VENDORS.validate_python(yaml.safe_load(files(__package__).joinpath("vendors.yaml").read_text("utf-8")))


def vendor_of(resource: str) -> Vendor | None:
    """The vendor of an extended resource; None if the table doesn't know it."""
    return next((one for one in vendors() if one.has(resource)), None)


def version(rows: Iterable[Labels], labels: Mapping[str, str]) -> str:
    """The first version that the labels tell; empty if none does."""
    return next((found for one in rows if (found := one.join_values(labels))), "")
