"""The verb doctor against a fake API server, with objects that are made by hand; e2e/test_doctor.py has a real one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.annexes.doctor.clusters import GPU, GPU_LABELS, condition, raw_node
from tests.annexes.doctor.gpucluster import POOL, gpu_cluster, user
from tests.cli.here import here as folder
from tests.cli.kube import Shell, on, shell
from tests.cluster.kube.fakeapi import status

OTHER_DRIVER = {"nvidia.com/cuda.driver-version.full": "560.35.03"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with gpu_cluster(tmp_path) as one:
        yield one


async def change(one: Shell, name: str, labels: dict[str, str] | None = None, left: int = 8, **spec: Any) -> None:
    made = raw_node(name, {GPU: 8}, GPU_LABELS | POOL | (labels or {}))
    made["status"]["allocatable"] = {**made["status"]["allocatable"], GPU: str(left)}
    await one.api.put("nodes", {**made, "spec": spec})


def flat(out: str) -> list[str]:
    """The lines, with one space between words."""
    return [" ".join(line.split()) for line in out.splitlines()]


async def on_terminal(one: Shell, columns: int, *arguments: str) -> list[str]:
    """Run a command on a terminal that is so wide; the lines that it shows, without colours."""
    ours, theirs = os.openpty()
    env = {key: value for key, value in os.environ.items() if key != "GANGCTL_STATE_DIR"}
    env |= {"HOME": str(one.path), "KUBECONFIG": str(one.config), "TERM": "xterm", "COLUMNS": str(columns)}
    command = (sys.executable, "-m", "gangctl", *arguments)
    child = await asyncio.create_subprocess_exec(*command, cwd=one.path, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)

    def read() -> bytes:
        seen = b""
        with suppress(OSError):
            while chunk := os.read(ours, 1 << 16):
                seen += chunk
        return seen

    seen = await asyncio.to_thread(read)
    await child.wait()
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).splitlines()


def forbid(one: Shell, ending: str) -> None:
    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", 'User "me" cannot')

    one.api.faults.append(on(ending, no))


async def test_a_healthy_node_is_shown_link_by_link_and_the_exit_code_is_0(here: Shell) -> None:
    done = await here.gangctl("doctor", "gpu-1")
    assert (done.code, done.err) == (0, "")
    lines = flat(done.out)
    assert lines[0] == "node gpu-1: no link failed"
    assert "ok allocations nvidia.com/gpu: 2 of 8: research/train-0 2" in lines
    assert "NVIDIA GPUs" in lines


async def test_a_link_that_failed_has_what_to_do_and_the_exit_code_is_1(here: Shell) -> None:
    await change(here, "gpu-1", left=7)
    done = await here.gangctl("doctor", "node/gpu-1")
    assert done.code == 1
    assert "node gpu-1: 1 of 13 links failed" in done.out
    assert "FAILED   allocatable" in done.out
    assert "next: the plugin's log says which and why" in done.out


async def test_a_pod_is_shown_with_its_node(here: Shell) -> None:
    for words in (["train-0"], ["pod/train-0"], ["train-0", "-n", "research"]):
        done = await here.gangctl("doctor", *words)
        assert done.code == 0
        assert "pod research/train-0: no link failed" in done.out
        assert "node gpu-1: no link failed" in done.out
        assert "the driver supports CUDA 12.4" in done.out
    await here.api.put(
        "pods", user(status={"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy"})
    )
    done = await here.gangctl("doctor", "train-0")
    assert done.code == 1
    assert "FAILED   admission" in done.out
    assert "next: check the device plugin on that node, and its log" in done.out


async def test_a_pod_without_a_node_says_what_the_scheduler_says(here: Shell) -> None:
    why = condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    pending = user(status={"phase": "Pending", "conditions": [why]})
    del pending["spec"]["nodeName"]
    await here.api.put("pods", pending)
    done = await here.gangctl("doctor", "train-0")
    assert (done.code, "2 Insufficient nvidia.com/gpu" in done.out) == (1, True)


async def test_the_fleet_names_the_node_that_differs_from_its_pool(here: Shell) -> None:
    """The bad rollout of a driver on one pool."""
    done = await here.gangctl("doctor")
    assert (done.code, "pool train: 2 nodes (nvidia.com/gpu): alike, and nothing failed" in done.out) == (0, True)
    await here.api.put("nodes", raw_node("cpu-1", {}))
    await change(here, "gpu-2", OTHER_DRIVER)
    done = await here.gangctl("doctor")
    assert done.code == 1
    assert "2 nodes with devices in 1 pool; 1 other node without devices" in done.out
    assert "differs driver 550.90.07 on gpu-1; 560.35.03 on gpu-2" in flat(done.out)
    assert "next: if no rollout is on, find out why" in done.out


async def test_the_fleet_names_failed_links_by_node(here: Shell) -> None:
    await change(here, "gpu-2", left=0)
    done = await here.gangctl("doctor")
    assert done.code == 1
    seen = (
        "FAILED gpu-2 allocatable: nvidia.com/gpu: 0 of 8: the device plugin is gone, or calls every device unhealthy"
    )
    assert seen in flat(done.out)


async def test_a_cluster_without_devices_says_so(tmp_path: Path) -> None:
    async with shell(tmp_path) as one:
        await one.api.put("nodes", raw_node("cpu-1", {}))
        done = await one.gangctl("doctor")
        assert (done.code, done.out) == (0, "no node has devices; 1 other node without devices\n")
        assert "no extended resource, and no label of a vendor's devices" in (await one.gangctl("doctor", "cpu-1")).out


async def test_programs_get_all_links(here: Shell) -> None:
    await change(here, "gpu-2", OTHER_DRIVER)
    fleet = json.loads((await here.gangctl("doctor", "-o", "json")).out)
    (pool,) = fleet["pools"]
    assert (fleet["kind"], fleet["state"], fleet["missingRights"]) == ("Fleet", "Failed", [])
    assert pool["differences"] == [
        {
            "what": "driver",
            "values": [{"value": "550.90.07", "nodes": ["gpu-1"]}, {"value": "560.35.03", "nodes": ["gpu-2"]}],
        }
    ]
    pod = yaml.safe_load((await here.gangctl("doctor", "train-0", "-o", "yaml")).out)
    assert (pod["kind"], pod["state"], pod["node"]["name"]) == ("Pod", "Ok", "gpu-1")
    links = {one["link"]: one for one in pod["node"]["links"]}
    assert links["Capacity"] == {
        "link": "Capacity",
        "state": "Ok",
        "about": "NVIDIA GPUs",
        "resource": GPU,
        "seen": "8",
    }


async def test_links_that_are_absent_are_named_and_explained_on_request(here: Shell) -> None:
    await here.api.remove("pods", "gpu-operator", "nvidia-dcgm-exporter-x-gpu-1")
    await here.api.remove("runtimeclasses", "", "nvidia")
    out = (await here.gangctl("doctor", "gpu-1")).out
    assert "absent: runtime class, exporter (-o wide says why)" in out
    wide = (await here.gangctl("doctor", "gpu-1", "-o", "wide")).out
    assert "absent exporter there is no such pod on the node" in flat(wide)


@pytest.mark.parametrize(
    ("ending", "words", "right"),
    [
        ("/api/v1/pods", ["gpu-1"], "list pods in all namespaces"),
        ("/runtimeclasses", ["gpu-1"], "list runtimeclasses.node.k8s.io"),
        ("/nodes/gpu-1", ["train-0"], "get nodes"),
        ("/nodes/gpu-1", ["gpu-1"], "get nodes"),
        ("/api/v1/pods", [], "list pods in all namespaces"),
        ("/daemonsets", [], "list daemonsets.apps in all namespaces"),
    ],
)
async def test_a_missing_right_is_named_and_the_rest_is_answered(
    here: Shell, ending: str, words: list[str], right: str
) -> None:
    forbid(here, ending)
    done = await here.gangctl("doctor", *words)
    assert (done.code, done.err) == (0, "")
    assert f"you lack the right to {right}" in done.out
    assert len(done.out.splitlines()) > 3 or not words


async def test_without_the_right_to_list_nodes_there_is_no_fleet(here: Shell) -> None:
    forbid(here, "/nodes")
    done = await here.gangctl("doctor")
    assert (done.code, done.out) == (2, "")
    assert "you lack the right to list nodes: doctor NODE and doctor POD need less" in done.err


async def test_a_pod_that_may_not_be_read_is_an_error_that_quotes_the_api_server(here: Shell) -> None:
    forbid(here, "/pods/train-0")
    done = await here.gangctl("doctor", "pod/train-0")
    assert (done.code, 'User "me" cannot' in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu-3"], "there is no node, and no pod 'gpu-3' in namespace research: did you mean gpu-2 or gpu-1?"),
        (["pod/trian-0"], "there is no pod 'trian-0' in namespace research: did you mean train-0?"),
        (["node/gpu-3"], "there is no node 'gpu-3': kubectl get nodes lists them"),
        (["job/x"], "'job/x' isn't a node or a pod: use NAME, node/NAME or pod/NAME"),
        (["../x"], "'../x' isn't a node or a pod"),
        (["Gpu_1"], "'Gpu_1' is not a valid name of a node or pod"),
        (["--exec"], "--exec looks into the container of a pod: name the pod"),
        (["gpu-1", "--exec"], "gpu-1 is a node: --exec looks into the container of a pod"),
    ],
)
async def test_bad_input_is_an_error_in_one_line(here: Shell, words: list[str], said: str) -> None:
    done = await here.gangctl("doctor", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


async def test_markup_and_control_characters_of_the_cluster_are_escaped(here: Shell) -> None:
    evil = "\x1b[31m[bold red]\u202e"
    await change(here, "gpu-1", {"nvidia.com/cuda.driver-version.full": evil}, taints=[
        {"key": "AggregatedNodeHealth", "value": evil, "effect": evil}
    ])  # fmt: skip
    for words in (["gpu-1"], [], ["gpu-1", "-o", "json"], ["-o", "yaml"]):
        out = (await here.gangctl("doctor", *words)).out
        assert "[bold red]" in out
        assert not {"\x1b", "\u202e"} & set(out)


@pytest.mark.parametrize("columns", [50, 80])
async def test_it_reads_well_on_a_narrow_terminal(here: Shell, columns: int) -> None:
    await change(here, "gpu-1", OTHER_DRIVER, left=7)
    for words in ("train-0", ""):
        lines = await on_terminal(here, columns, "doctor", *filter(None, [words]))
        assert max(map(len, lines)) <= columns
        text = " ".join(" ".join(lines).split())
        assert "FAILED" in text


def test_without_a_cluster_the_doctor_asks_for_a_kubeconfig(tmp_path: Path) -> None:
    with folder(tmp_path) as one:
        done = one.gangctl("doctor")
    assert done.returncode == 2
    assert "no cluster is configured" in done.stderr
