"""The chain of one pod, before that of its node: was it placed, did the kubelet take it, does it see its devices?

The CUDA of its image is compared with what the driver of the node supports (NVIDIA, CUDA Compatibility)::

    image <= driver                     ok: drivers are backward compatible
    same major version, image newer     ok from CUDA 11 on, with limits: minor version compatibility
    newer major version                 failed; unknown if the image brings the package cuda-compat, which works on data
                                        center GPUs only (forward compatibility)
"""

import re
from collections.abc import Mapping
from typing import Final

from gangctl.annexes.doctor.links import Inside, Link, LinkName, LinkState, NodeSurroundings, Unread, unread
from gangctl.annexes.doctor.table import Vendor, vendor_of, version
from gangctl.core.facts.fitness import checks
from gangctl.kubernetes.objects import Node, PodContainer, WholePod

_FIRST_MINOR_COMPATIBLE: Final = 11
_REQUIRE: Final = "NVIDIA_REQUIRE_CUDA"
_COMPAT: Final = "NV_CUDA_COMPAT_PACKAGE"
VARIABLES: Final = ("CUDA_VERSION", _REQUIRE, _COMPAT)
"""Set by NVIDIA's images (nvidia/cuda, Dockerfile of base): ``12.4.1``; ``cuda>=12.4 brand=tesla,driver>=535,...``, of
which words are alternatives, and conditions between commas all hold; ``cuda-compat-12-4``."""
_IN_VARIABLE: Final = re.compile(r"(?:cuda>=)?(\d{1,3})\.(\d{1,3})")
_OF_CUDA_IMAGE: Final = re.compile(r"(?:^|/)nvidia/cuda:(\d{1,3})\.(\d{1,3})")
_IN_TAG: Final = re.compile(r"cuda[-_.]?(\d{1,2})\.(\d{1,2})")
"""As in ``pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime``."""
_SHORT: Final = re.compile(r"(?:^|[-_.+])cu(\d{2})(\d)(?=$|[-_.])")
"""As in ``vllm:v0.6-cu124``."""


def cuda_link(container: PodContainer, inside: Mapping[str, str], supported: str, about: str) -> Link | None:
    """Compare them; None if the image's CUDA isn't known.

    Args:
        container: the container with devices, by the pod's spec.
        inside: variables that a program in the container has seen; empty if none has looked.
        supported: the newest CUDA that the driver supports, as ``12.4``; empty if the node's labels don't tell.
        about: the vendor in words.
    """
    env = {**container.env, **inside}
    found = _of_environment(env) or _of_image(container.image)
    if found is None:
        return None
    version, source = found
    has = f"container {container.name} has CUDA {_text(version)} ({source})"
    driver = _IN_VARIABLE.match(supported)
    if driver is None:
        return Link(LinkName.CUDA, LinkState.UNKNOWN, f"{has}; no label has what the driver supports", about=about)
    limit = int(driver[1]), int(driver[2])
    seen = f"{has}; the driver supports CUDA {_text(limit)}"
    if version <= limit:
        return Link(LinkName.CUDA, LinkState.OK, seen, about=about)
    if version[0] == limit[0] >= _FIRST_MINOR_COMPATIBLE:
        return Link(LinkName.CUDA, LinkState.OK, f"{seen}: compatible within {limit[0]}.x, with limits", about=about)
    if _is_forward_compatible(env, container.image):
        seen += ": the image also runs with older drivers, by cuda-compat, but only on data center GPUs"
        return Link(LinkName.CUDA, LinkState.UNKNOWN, seen, about=about)
    todo = f"use an image with CUDA {_text(limit)} or older, update the driver, or add cuda-compat to the image"
    return Link(LinkName.CUDA, LinkState.FAILED, seen, todo, about)


def _of_environment(env: Mapping[str, str]) -> tuple[tuple[int, int], str] | None:
    for name in VARIABLES:
        found = _IN_VARIABLE.match(env.get(name, ""))
        if found is not None:
            return (int(found[1]), int(found[2])), f"by {name}"
    return None


def _is_forward_compatible(env: Mapping[str, str], image: str) -> bool:
    """Return whether the image brings cuda-compat, as nvidia/cuda does: then an alternative to a CUDA is a driver."""
    drivers = any("driver>=" in one and "cuda>=" not in one for one in env.get(_REQUIRE, "").split())
    return drivers or bool(env.get(_COMPAT)) or _OF_CUDA_IMAGE.search(image) is not None


def _of_image(image: str) -> tuple[tuple[int, int], str] | None:
    of_cuda = _OF_CUDA_IMAGE.search(image)
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    found = of_cuda or _IN_TAG.search(tag) or _SHORT.search(tag)
    return None if found is None else ((int(found[1]), int(found[2])), "by the image's tag")


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def pod_chain(pod: WholePod, node: Node | None, around: NodeSurroundings, inside: Inside | None) -> tuple[Link, ...]:
    """All links of a pod.

    Args:
        pod: the pod.
        node: its node; None if it has none or that can't be read.
        around: what runs on the node, and what the cluster has.
        inside: what a program in its container has seen; None if none was to look.
    """
    links = [_requests(pod), _scheduling(pod)]
    if pod.node:
        links += [_admission(pod), _start(pod)]
    if pod.runtime_class:
        links.append(_runtime_class(pod, around))
    if pod.node and (pod.device_requests or pod.devices):
        links.append(_health(pod))
    if pod.node and pod.device_requests:
        links += _cuda(pod, node, inside)
        links += [_inside(pod, node, inside)] if inside is not None else []
    return tuple(links)


def _requests(pod: WholePod) -> Link:
    if pod.has_resource_claims and not pod.device_requests:
        seen = "the pod asks for devices by resource claims, which are not followed here"
        return Link(LinkName.REQUESTS, LinkState.UNKNOWN, seen)
    if not pod.device_requests:
        return Link(LinkName.REQUESTS, LinkState.ABSENT, "the pod asks for no extended resource, so it gets no device")
    asked = ", ".join(f"{amount} {resource}" for resource, amount in sorted(pod.device_requests.items()))
    return Link(LinkName.REQUESTS, LinkState.OK, f"the pod asks for {asked}")


def _scheduling(pod: WholePod) -> Link:
    if pod.node:
        return Link(LinkName.SCHEDULING, LinkState.OK, f"it is on node {pod.node}")
    why = f": {pod.unscheduled}" if pod.unscheduled else ""
    todo = "gangctl doctor without an argument shows nodes that lack devices or differ"
    return Link(LinkName.SCHEDULING, LinkState.FAILED, f"the pod has no node{why}", todo)


def _admission(pod: WholePod) -> Link:
    advice = checks(pod.reason)
    if advice:
        words = f": {pod.message}" if pod.message else ""
        seen = f"the kubelet of {pod.node} rejected the pod: {pod.reason}{words}"
        return Link(LinkName.ADMISSION, LinkState.FAILED, seen, advice)
    if not pod.taken:
        return Link(LinkName.ADMISSION, LinkState.UNKNOWN, f"the kubelet of {pod.node} has not answered yet")
    return Link(LinkName.ADMISSION, LinkState.OK, f"the kubelet of {pod.node} took the pod")


def _start(pod: WholePod) -> Link:
    if pod.waiting:
        todo = f"kubectl describe pod -n {pod.namespace} {pod.name} has the Events of its start"
        return Link(LinkName.START, LinkState.FAILED, f"a container does not run: {pod.waiting}", todo)
    if pod.ended:
        words = ": ".join(part for part in (pod.reason, pod.message) if part)
        return Link(LinkName.START, LinkState.ABSENT, f"the pod has ended ({words or pod.phase})")
    if pod.phase == "Running":
        return Link(LinkName.START, LinkState.OK, "its containers run")
    held = f": init container {pod.initializing} has not ended" if pod.initializing else ""
    return Link(LinkName.START, LinkState.UNKNOWN, f"its containers do not run yet{held}")


def _runtime_class(pod: WholePod, around: NodeSurroundings) -> Link:
    name, known = LinkName.POD_RUNTIME_CLASS, around.runtime_classes
    if isinstance(known, Unread):
        return unread(name, known)
    if pod.runtime_class in known:
        return Link(name, LinkState.OK, f"the pod's RuntimeClass {pod.runtime_class} exists")
    seen = f"the pod names RuntimeClass {pod.runtime_class}, which does not exist"
    return Link(name, LinkState.FAILED, seen, "create it, or correct runtimeClassName")


def _health(pod: WholePod) -> Link:
    name = LinkName.HEALTH
    if not pod.devices:
        seen = (
            "the pod's status has no health of devices: the kubelet's feature ResourceHealthStatus is off, or none came"
        )
        return Link(name, LinkState.ABSENT, seen)
    health = [f"{one.resource} {one.name}{f' ({one.message})' if one.message else ''}" for one in pod.devices]
    sick = [text for one, text in zip(pod.devices, health, strict=True) if one.health == "Unhealthy"]
    if sick:
        todo = "a gang leaves the device by itself; otherwise delete the pod, and repair or drain the node"
        return Link(name, LinkState.FAILED, f"unhealthy: {', '.join(sick)}", todo)
    unknown = [text for one, text in zip(pod.devices, health, strict=True) if one.health != "Healthy"]
    if unknown:
        return Link(name, LinkState.UNKNOWN, f"the health is not known: {', '.join(unknown)}")
    return Link(name, LinkState.OK, f"healthy: {', '.join(health)}")


def _cuda(pod: WholePod, node: Node | None, inside: Inside | None) -> list[Link]:
    labels = {} if node is None else node.labels
    found = []
    for vendor in _vendors(pod):
        if not vendor.cuda:
            continue
        supported = version(vendor.cuda, labels)
        links = [cuda_link(one, _env(inside, one.name), supported, vendor.title) for one in _with_devices(pod)]
        known = [one for one in links if one is not None]
        seen = "the image's CUDA isn't known: neither its tag nor a variable in the pod's spec has it"
        if inside is None:
            seen += " (--exec looks inside)"
        found += known or [Link(LinkName.CUDA, LinkState.UNKNOWN, seen, about=vendor.title)]
    return found


def _inside(pod: WholePod, node: Node | None, inside: Inside) -> Link:
    name = LinkName.INSIDE
    if inside.failure:
        return Link(name, LinkState.UNKNOWN, inside.failure)
    known = _vendors(pod)
    if not known:
        return Link(name, LinkState.UNKNOWN, "the table knows no device files of these resources")
    where, globs = f"container {inside.container}", [glob for one in known for glob in one.files.glob]
    if not inside.files:
        todo = "check the container toolkit and the runtime class; a container that is not privileged needs them"
        return Link(name, LinkState.FAILED, f"{where} has no {' or '.join(globs)}", todo)
    asked = sum(amount for resource, amount in pod.device_requests.items() if vendor_of(resource) is not None)
    seen = f"{where} has {len(inside.files)}: {', '.join(inside.files)}"
    if len(inside.files) < asked and _are_whole(pod, node, known):
        todo = "a device may have left the bus while the pod ran: look at the node's health, then replace the pod"
        return Link(name, LinkState.FAILED, f"{seen}; the pod asks for {asked}", todo)
    return Link(name, LinkState.OK, seen)


def _are_whole(pod: WholePod, node: Node | None, known: list[Vendor]) -> bool:
    """Return whether each device of the pod has a file of its own: not if devices are shared, or cut into parts."""
    if node is None or len(known) != 1:
        return False
    return set(pod.device_requests) == {known[0].resources[0]} and not known[0].is_shared(node.labels)


def _with_devices(pod: WholePod) -> list[PodContainer]:
    return [one for one in pod.containers if one.devices] or list(pod.containers)


def _vendors(pod: WholePod) -> list[Vendor]:
    found = {one.name: one for resource in sorted(pod.device_requests) if (one := vendor_of(resource)) is not None}
    return list(found.values())


def _env(inside: Inside | None, container: str) -> Mapping[str, str]:
    return inside.env if inside is not None and inside.container == container else {}
