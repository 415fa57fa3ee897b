"""The chain of a node: each link ok, failed, absent and unknown, with objects that are made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangctl.annexes.doctor.links import LinkName, LinkState, NodeSurroundings, Unread
from tests.annexes.doctor.clusters import (
    GPU,
    GPU_LABELS,
    around,
    condition,
    gpu_node,
    links,
    node,
    not_ready,
    operands,
    raw_daemon_set,
    raw_node,
    raw_pod,
    states,
    with_allocatable,
)

OK, FAILED, ABSENT, UNKNOWN = LinkState.OK, LinkState.FAILED, LinkState.ABSENT, LinkState.UNKNOWN
PLUGIN = "nvidia-device-plugin-daemonset"
FOLDER = {"volumes": [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]}


def test_a_healthy_node_of_the_gpu_operator_has_all_links() -> None:
    user = raw_pod("train-0", "gpu-1", {}, namespace="research", requests={GPU: 6})
    found = links(gpu_node(), around(*operands("gpu-1"), user))
    assert set(states(found).values()) == {OK}
    assert set(found) == {
        LinkName.NODE,
        LinkName.SIGNALS,
        LinkName.DRIVER,
        LinkName.CONTAINER_TOOLKIT,
        LinkName.RUNTIME_CLASS,
        LinkName.DEVICE_PLUGIN,
        LinkName.CAPACITY,
        LinkName.ALLOCATABLE,
        LinkName.ALLOCATIONS,
        LinkName.FEATURE_LABELS,
        LinkName.PARTITIONS,
        LinkName.EXPORTER,
        LinkName.VALIDATOR,
    }
    assert found[LinkName.DRIVER].seen.startswith("version 550.90.07 by the node's labels")
    assert "nvcr.io/nvidia/k8s-device-plugin:v0.17.1" in found[LinkName.DEVICE_PLUGIN].seen
    assert found[LinkName.ALLOCATIONS].seen == "6 of 8: research/train-0 6"


def test_a_cluster_without_an_operator_has_capacity_allocatable_and_allocations_only() -> None:
    """A bare device plugin, which runs outside of pods."""
    bare = node(raw_node("n", {"example.com/accelerator": 4}))
    found = links(bare, around(runtime_classes=()))
    assert {name for name, one in found.items() if one.state is OK and one.about} == {
        LinkName.CAPACITY,
        LinkName.ALLOCATABLE,
        LinkName.ALLOCATIONS,
    }
    assert found[LinkName.DEVICE_PLUGIN].state is ABSENT
    assert FAILED not in states(found).values()


def test_nvidias_plugin_alone_lacks_the_rest_without_a_failure() -> None:
    plugin = raw_pod("p", "n", {"name": "nvidia-device-plugin-ds"}, namespace="kube-system")
    found = links(node(raw_node("n", {GPU: 2})), around(plugin, runtime_classes=()))
    lacking = {LinkName.DRIVER, LinkName.CONTAINER_TOOLKIT, LinkName.RUNTIME_CLASS, LinkName.FEATURE_LABELS}
    lacking |= {LinkName.PARTITIONS, LinkName.EXPORTER, LinkName.VALIDATOR}
    assert {name for name, one in found.items() if one.state is ABSENT} == lacking
    assert {one.state for name, one in found.items() if name not in lacking} == {OK}


def test_the_amd_operator_is_known_by_its_containers() -> None:
    labels = {"feature.node.kubernetes.io/amd-gpu": "true", "amd.com/gpu.driver-version": "6.12.12"}
    labels |= {"amd.com/gpu.device-id": "74a1"}
    shared = {"daemonset-name": "default"}
    pods = [
        raw_pod("default-device-plugin-x", "amd-1", shared, "rocm/k8s-device-plugin:1", container="device-plugin"),
        raw_pod("default-node-labeller-x", "amd-1", shared, container="node-labeller-container"),
        raw_pod(
            "e",
            "amd-1",
            shared | {"app.kubernetes.io/name": "metrics-exporter"},
            container="metrics-exporter-container",
        ),
    ]
    found = links(node(raw_node("amd-1", {"amd.com/gpu": 8}, labels)), around(*pods))
    assert "default-device-plugin-x is ready (rocm/k8s-device-plugin:1)" in found[LinkName.DEVICE_PLUGIN].seen
    assert found[LinkName.DRIVER].seen == "version 6.12.12 by the node's labels"
    assert found[LinkName.EXPORTER].state is OK
    assert found[LinkName.FEATURE_LABELS].seen == "amd.com/gpu.device-id=74a1"
    assert (
        links(node(raw_node("amd-1", {"amd.com/gpu": 8}, labels)), around(*pods[1:]))[LinkName.DEVICE_PLUGIN].state
        is ABSENT
    )


@pytest.mark.parametrize(
    ("app", "link"),
    [
        ("nvidia-driver-daemonset", LinkName.DRIVER),
        ("nvidia-container-toolkit-daemonset", LinkName.CONTAINER_TOOLKIT),
        (PLUGIN, LinkName.DEVICE_PLUGIN),
        ("gpu-feature-discovery", LinkName.FEATURE_LABELS),
        ("nvidia-mig-manager", LinkName.PARTITIONS),
        ("nvidia-dcgm-exporter", LinkName.EXPORTER),
        ("nvidia-operator-validator", LinkName.VALIDATOR),
    ],
)
def test_a_pod_of_the_operator_that_is_not_ready_fails_its_link_alone(app: str, link: LinkName) -> None:
    sick = raw_pod(f"{app}-y", "gpu-1", {"app": app}, status=not_ready("CrashLoopBackOff", "back-off 5m0s"))
    found = links(gpu_node(), around(*operands("gpu-1", but=(app,)), sick))
    assert [name for name, one in found.items() if one.state is not OK] == [link]
    assert f"pod gpu-operator/{app}-y is not ready: container main: CrashLoopBackOff: back-off" in found[link].seen
    assert found[link].todo.startswith(f"kubectl describe pod -n gpu-operator {app}-y")


def test_an_init_container_that_waits_is_named() -> None:
    """The plugin waits for the toolkit: Init:0/2."""
    status = {"phase": "Pending", "conditions": [condition("Ready", "False")]}
    status["initContainerStatuses"] = [{"name": "toolkit-validation", "state": {"running": {}}}]
    held = raw_pod("p", "gpu-1", {"app": PLUGIN}, status=status)
    found = links(gpu_node(), around(*operands("gpu-1", but=(PLUGIN,)), held))
    assert "is not ready: its init container toolkit-validation has not ended" in found[LinkName.DEVICE_PLUGIN].seen


def test_a_daemon_set_that_selects_the_node_and_has_no_pod_there_fails_the_link() -> None:
    selects = raw_daemon_set(PLUGIN, {"app": PLUGIN}, nodeSelector={"nvidia.com/gpu.deploy.device-plugin": "true"})
    rest = operands("gpu-1", but=(PLUGIN,))
    found = links(gpu_node(), around(*rest, daemon_sets=(selects,)))[LinkName.DEVICE_PLUGIN]
    assert (found.state, found.seen) == (
        FAILED,
        f"DaemonSet gpu-operator/{PLUGIN} selects this node and has no pod here",
    )

    tainted = replace(gpu_node(), taints=node({**raw_node("n", {}), "spec": {"taints": [
        {"key": "team", "value": "a", "effect": "NoSchedule"}]}}).taints)  # fmt: skip
    found = links(tainted, around(*rest, daemon_sets=(selects,)))[LinkName.DEVICE_PLUGIN]
    assert "does not tolerate the taint team=a:NoSchedule" in found.seen
    for tolerated in ({"operator": "Exists"}, {"key": "team", "operator": "Exists"}, {"key": "team", "value": "a"}):
        one = raw_daemon_set(
            PLUGIN, {"app": PLUGIN}, nodeSelector={"nvidia.com/gpu.present": "true"}, tolerations=[tolerated]
        )
        found = links(tainted, around(*rest, daemon_sets=(one,)))[LinkName.DEVICE_PLUGIN]
        assert "selects this node" in found.seen


def test_a_daemon_set_that_does_not_select_the_node_says_which_label_is_missing() -> None:
    other = raw_daemon_set(
        "mig", {"app": "nvidia-mig-manager"}, nodeSelector={"nvidia.com/gpu.deploy.mig-manager": "true"}
    )
    rest = operands("gpu-1", but=("nvidia-mig-manager",))
    bare = replace(gpu_node(), labels={key: GPU_LABELS[key] for key in GPU_LABELS if "mig" not in key})
    found = links(bare, around(*rest, daemon_sets=(other,)))[LinkName.PARTITIONS]
    assert found.state is ABSENT
    assert "it selects nodes with nvidia.com/gpu.deploy.mig-manager=true, and this one lacks it" in found.seen


def test_a_required_affinity_counts_like_a_selector() -> None:
    """As GKE's plugin has it."""
    terms = [{"matchExpressions": [{"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    gke = raw_daemon_set("gke", {"k8s-app": "nvidia-gpu-device-plugin"}, affinity={"nodeAffinity": required})
    label = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    for labels, state in (({}, ABSENT), (label, FAILED)):
        found = links(node(raw_node("n", {GPU: 8}, labels)), around(daemon_sets=(gke,)))
        assert found[LinkName.DEVICE_PLUGIN].state is state


def test_a_device_that_is_not_allocatable_fails_with_the_number() -> None:
    found = links(with_allocatable(gpu_node(), GPU, 7), around(*operands("gpu-1")))
    assert [name for name, one in found.items() if one.state is not OK] == [LinkName.ALLOCATABLE]
    assert found[LinkName.ALLOCATABLE].seen == "7 of 8: the device plugin calls 1 unhealthy"


def test_a_plugin_that_is_gone_leaves_none_allocatable_and_then_no_capacity() -> None:
    user = raw_pod("train-0", "gpu-1", {}, namespace="research", requests={GPU: 8})
    found = links(with_allocatable(gpu_node(), GPU, 0), around(*operands("gpu-1"), user))
    assert found[LinkName.ALLOCATABLE].seen.startswith("0 of 8: the device plugin is gone")
    assert found[LinkName.ALLOCATIONS].seen == "more than is allocatable: 8 of 0: research/train-0 8"
    gone = node(raw_node("gpu-1", {GPU: 0}, GPU_LABELS))
    assert "the node has no nvidia.com/gpu" in links(gone, around())[LinkName.CAPACITY].seen
    never = node(raw_node("gpu-1", {}, GPU_LABELS))
    assert links(never, around())[LinkName.CAPACITY].state is FAILED
    bare = links(node(raw_node("n", {"example.com/nic": 0})), around())
    assert bare[LinkName.CAPACITY].seen == "0: its device plugin is gone, was removed, or finds no device"
    assert bare[LinkName.CAPACITY].state is UNKNOWN


def test_a_node_without_devices_is_not_asked_for_them() -> None:
    """NVIDIA's static DaemonSet runs on every node."""
    idle = raw_pod("p", "cpu-1", {"name": "nvidia-device-plugin-ds"})
    assert set(links(node(raw_node("cpu-1", {})), around(idle))) == {LinkName.NODE, LinkName.SIGNALS}
    sick = raw_pod("p", "cpu-1", {"name": "nvidia-device-plugin-ds"}, status=not_ready("CrashLoopBackOff"))
    found = links(node(raw_node("cpu-1", {})), around(sick))
    assert (found[LinkName.DEVICE_PLUGIN].state, found[LinkName.CAPACITY].state) == (FAILED, FAILED)


def test_pods_that_have_ended_hold_nothing() -> None:
    ended = raw_pod("done", "gpu-1", {}, requests={GPU: 8}, status={"phase": "Succeeded"})
    assert links(gpu_node(), around(ended))[LinkName.ALLOCATIONS].seen == "0 of 8"


def test_init_containers_and_sidecars_count_as_the_scheduler_counts_them() -> None:
    limits = {"resources": {"limits": {GPU: "2"}}}
    inits = [
        {"name": "prepare", "resources": {"limits": {GPU: "4"}}},
        {"name": "side", "restartPolicy": "Always", **limits},
    ]
    user = raw_pod("t", "gpu-1", {}, requests={GPU: 1}, spec={"initContainers": inits})
    assert links(gpu_node(), around(user))[LinkName.ALLOCATIONS].seen == "4 of 8: gpu-operator/t 4"


def test_an_upgrade_of_the_driver_that_failed_fails_the_driver() -> None:
    labels = {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}
    found = links(gpu_node(**labels), around(*operands("gpu-1")))[LinkName.DRIVER]
    assert found.state is FAILED
    assert (
        "its upgrade has failed (nvidia.com/gpu-driver-upgrade-state=upgrade-failed); version 550.90.07" in found.seen
    )


@pytest.mark.parametrize(
    ("state", "expected"), [("success", OK), ("failed", FAILED), ("pending", UNKNOWN), ("", UNKNOWN)]
)
def test_mig_is_as_its_label_says(state: str, expected: LinkState) -> None:
    labels = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": state}
    found = links(gpu_node(**labels), around(*operands("gpu-1")))[LinkName.PARTITIONS]
    assert found.state is expected
    assert "all-1g.10gb" in found.seen


def test_parts_of_gpus_are_resources_of_their_own_and_whole_ones_may_be_zero() -> None:
    parts = node(raw_node("gpu-1", {GPU: 0, "nvidia.com/mig-1g.10gb": 7}, GPU_LABELS))
    found = links(parts, around(*operands("gpu-1")))
    assert found[LinkName.CAPACITY].resource == "nvidia.com/mig-1g.10gb"
    assert set(states(found).values()) == {OK}


def test_feature_labels_that_are_missing_beside_a_ready_pod_fail() -> None:
    bare = replace(gpu_node(), labels={"nvidia.com/gpu.present": "true"})
    found = links(bare, around(*operands("gpu-1")))[LinkName.FEATURE_LABELS]
    assert (found.state, "and the node has no label nvidia.com/gpu.product" in found.seen) == (FAILED, True)


def test_a_node_that_is_not_ready_or_short_of_memory_fails() -> None:
    why = condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    lost = node(raw_node("n", {GPU: 8}, conditions=[why]))
    assert "not ready: NodeStatusUnknown: Kubelet stopped" in links(lost, around())[LinkName.NODE].seen
    short = node(raw_node("n", {GPU: 8}, conditions=[condition("Ready", "True"), condition("DiskPressure", "True")]))
    assert links(short, around())[LinkName.NODE].seen == "the node has DiskPressure"
    cordoned = replace(gpu_node(), cordoned=True)
    assert links(cordoned, around())[LinkName.NODE].seen == "the node is ready; it is cordoned and takes no new pods"


def test_signals_of_the_table_fail_unless_gangs_stay() -> None:
    xid = condition("GpuXidError", "True", "Xid79")
    shown = node(raw_node("n", {GPU: 8}, conditions=[condition("Ready", "True"), xid]))
    found = links(shown, around())[LinkName.SIGNALS]
    assert (found.state, found.seen) == (FAILED, "it shows condition GpuXidError=True (Xid79)")
    slow = node(
        raw_node("n", {GPU: 8}, conditions=[condition("Ready", "True"), condition("GPUClockThrottling", "True")])
    )
    assert links(slow, around())[LinkName.SIGNALS].state is OK
    tainted = {**raw_node("n", {GPU: 8}), "spec": {"taints": [{"key": "AggregatedNodeHealth", "effect": "NoSchedule"}]}}
    assert "taint AggregatedNodeHealth:NoSchedule" in links(node(tainted), around())[LinkName.SIGNALS].seen


def test_a_plugin_that_the_table_does_not_know_is_found_by_the_folder_it_mounts() -> None:
    mine = node(raw_node("n", {"example.com/accelerator": 4}))
    plugin = raw_pod("p", "n", {"app": "mine"}, spec=FOLDER)
    assert links(mine, around(plugin))[LinkName.DEVICE_PLUGIN].state is OK
    sick = raw_pod("p", "n", {"app": "mine"}, spec=FOLDER, status=not_ready("ErrImagePull"))
    assert links(mine, around(sick))[LinkName.DEVICE_PLUGIN].state is FAILED
    nvidias = raw_pod("p", "n", {"name": "nvidia-device-plugin-ds"}, spec=FOLDER)
    assert links(mine, around(nvidias))[LinkName.DEVICE_PLUGIN].state is ABSENT


def test_what_may_not_be_read_is_unknown_and_names_the_right() -> None:
    no_pods = NodeSurroundings(
        pods=Unread("list pods in all namespaces"),
        daemon_sets=Unread("list daemonsets.apps in all namespaces"),
        runtime_classes=Unread("list runtimeclasses.node.k8s.io"),
    )
    found = links(gpu_node(), no_pods)
    assert found[LinkName.DEVICE_PLUGIN].seen == "you lack the right to list pods in all namespaces"
    assert found[LinkName.RUNTIME_CLASS].seen == "you lack the right to list runtimeclasses.node.k8s.io"
    assert {name for name, one in found.items() if one.state is OK} == {
        LinkName.NODE,
        LinkName.SIGNALS,
        LinkName.DRIVER,
        LinkName.CAPACITY,
        LinkName.ALLOCATABLE,
        LinkName.FEATURE_LABELS,
        LinkName.PARTITIONS,
    }
    assert set(states(found).values()) == {OK, UNKNOWN}
    no_sets = replace(around(), daemon_sets=no_pods.daemon_sets)
    missing = links(gpu_node(), no_sets)[LinkName.VALIDATOR]
    assert (missing.state, "you lack the right to list daemonsets.apps" in missing.seen) == (UNKNOWN, True)
