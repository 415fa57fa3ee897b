"""A fake API server with two nodes of NVIDIA's GPU operator, which are alike, and a pod of a user on the first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.annexes.doctor.clusters import GPU, GPU_LABELS, operands, raw_node, raw_pod
from tests.cli.kube import Shell, shell

POOL = {"cloud.google.com/gke-nodepool": "train"}


@asynccontextmanager
async def gpu_cluster(path: Path) -> AsyncIterator[Shell]:
    async with shell(path) as one:
        for name in ("gpu-1", "gpu-2"):
            await one.api.put("nodes", raw_node(name, {GPU: 8}, GPU_LABELS | POOL))
            for pod in operands(name):
                pod["metadata"]["name"] += f"-{name}"
                await one.api.put("pods", pod)
        await one.api.put("pods", user())
        await one.api.put("runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
        yield one


def user(**more: Any) -> dict[str, Any]:
    image = "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"
    return raw_pod("train-0", "gpu-1", {}, image, namespace="research", **{"requests": {GPU: 2}, **more})
