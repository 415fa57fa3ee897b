"""The CUDA of an image against what the driver of the node supports.

The rule (NVIDIA, CUDA Compatibility)::

    image <= driver                     ok: drivers are backward compatible
    same major version, image newer     ok from CUDA 11 on, with limits: minor version compatibility
    newer major version                 failed, unless the image brings the package cuda-compat (data center GPUs only)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gangctl.explain.doctor.facts import Container
from gangctl.explain.doctor.links import Link, LinkName, LinkState

_FIRST_MINOR_COMPATIBLE: Final = 11
_VARIABLES: Final = ("CUDA_VERSION", "NVIDIA_REQUIRE_CUDA")
"""Set by NVIDIA's images (nvidia/cuda, Dockerfile of base): ``12.4.1``; ``cuda>=12.4 brand=...``."""
_IN_VARIABLE: Final = re.compile(r"(?:cuda>=)?(\d{1,3})\.(\d{1,3})")
_OF_CUDA_IMAGE: Final = re.compile(r"(?:^|/)nvidia/cuda:(\d{1,3})\.(\d{1,3})")
_IN_TAG: Final = re.compile(r"cuda[-_.]?(\d{1,2})\.(\d{1,2})")
"""As in ``pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime``."""
_SHORT: Final = re.compile(r"(?:^|[-_.+])cu(\d{2})(\d)(?=$|[-_.])")
"""As in ``vllm:v0.6-cu124``."""


def cuda_link(container: Container, inside: Mapping[str, str], supported: str, about: str) -> Link | None:
    """Compare them; None if the image's CUDA isn't known.

    Args:
        container: the container with devices, by the pod's spec.
        inside: variables that a program in the container has seen; empty if none has looked.
        supported: the newest CUDA that the driver supports, as ``12.4``; empty if the node's labels don't tell.
        about: the vendor in words.
    """
    found = _of_environment({**container.env, **inside}) or _of_image(container.image)
    if found is None:
        return None
    version, told = found
    has = f"container {container.name} has CUDA {_text(version)} ({told})"
    driver = _IN_VARIABLE.match(supported)
    if driver is None:
        return Link(LinkName.CUDA, LinkState.UNKNOWN, f"{has}; no label has what the driver supports", about=about)
    limit = int(driver[1]), int(driver[2])
    seen = f"{has}; the driver supports CUDA {_text(limit)}"
    if version <= limit:
        return Link(LinkName.CUDA, LinkState.OK, seen, about=about)
    if version[0] == limit[0] >= _FIRST_MINOR_COMPATIBLE:
        return Link(LinkName.CUDA, LinkState.OK, f"{seen}: compatible within {limit[0]}.x, with limits", about=about)
    todo = f"use an image with CUDA {_text(limit)} or older, update the driver, or add cuda-compat to the image"
    return Link(LinkName.CUDA, LinkState.FAILED, seen, todo, about)


def _of_environment(env: Mapping[str, str]) -> tuple[tuple[int, int], str] | None:
    for name in _VARIABLES:
        found = _IN_VARIABLE.match(env.get(name, ""))
        if found is not None:
            return (int(found[1]), int(found[2])), f"by {name}"
    return None


def _of_image(image: str) -> tuple[tuple[int, int], str] | None:
    of_cuda = _OF_CUDA_IMAGE.search(image)
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    found = of_cuda or _IN_TAG.search(tag) or _SHORT.search(tag)
    return None if found is None else ((int(found[1]), int(found[2])), "by the image's tag")


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
