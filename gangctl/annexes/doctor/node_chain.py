"""The chain of one node: the node itself, then for each vendor from its driver to its validator.

The rule: a vendor is on a node if its resources or its labels are, or if its device plugin runs there and is not ready:
many plugins also run, idle, on nodes without devices. Extended resources that the table doesn't know have the links
that any device plugin has.

While a plugin is gone, a kubelet keeps a resource's capacity and says that none is allocatable; five minutes later, or
after it was restarted, capacity is 0 as well (Kubernetes, pkg/kubelet/cm/devicemanager, GetCapacity).
"""

from typing import Final

from gangctl.annexes.doctor.components import component_link, pods_of
from gangctl.annexes.doctor.links import Link, LinkName, LinkState, NodeSurroundings, Unread, unread
from gangctl.annexes.doctor.table import ComponentKind, Vendor, vendor_of, vendors, version
from gangctl.core.facts.world import NodeAnswer
from gangctl.kubernetes.objects import Node, WholePod

_MOST_PODS: Final = 8
"""Pods that are named as holders of devices."""


def node_chain(node: Node, around: NodeSurroundings) -> tuple[Link, ...]:
    links = [_node(node), _signals(node)]
    for vendor in on_node(node, around):
        links += _of_vendor(node, around, vendor)
    for resource in sorted(one for one in node.capacity if vendor_of(one) is None):
        if around.all_pods:
            links.append(_unknown_plugin(around, resource))
        links += _of_resource(node, around, resource, resource)
    return tuple(links)


def on_node(node: Node, around: NodeSurroundings) -> tuple[Vendor, ...]:
    """The vendors that have devices on the node, or should have."""
    return tuple(one for one in vendors() if _has(node, around, one))


def has_devices(node: Node, around: NodeSurroundings) -> bool:
    """Return whether the node has devices, or should have."""
    return bool(node.capacity) or bool(on_node(node, around))


def _has(node: Node, around: NodeSurroundings, vendor: Vendor) -> bool:
    if any(vendor.has(one) for one in node.capacity) or any(one.on(node.labels) for one in vendor.signs):
        return True
    component = vendor.component(ComponentKind.DEVICE_PLUGIN)
    found = () if component is None or isinstance(around.pods, Unread) else pods_of(component, around.pods)
    return bool(found) and not any(one.ready for one in found)


def _node(node: Node) -> Link:
    if node.ready != "True":
        why = f": {node.why_not_ready}" if node.why_not_ready else ""
        todo = "look at the machine and its kubelet; nothing else here is up to date until the kubelet answers"
        return Link(LinkName.NODE, LinkState.FAILED, f"the node is not ready{why}", todo)
    if node.pressures:
        todo = f"kubectl describe node {node.name} says what is short; the kubelet may refuse or evict pods"
        return Link(LinkName.NODE, LinkState.FAILED, f"the node has {', '.join(node.pressures)}", todo)
    closed = "; it is cordoned and takes no new pods" if node.cordoned else ""
    return Link(LinkName.NODE, LinkState.OK, f"the node is ready{closed}")


def _signals(node: Node) -> Link:
    shown = [
        one for one in node.signals if one.shortage is None
    ]  # Too few allocatable devices are a link of their own.
    if not shown:
        return Link(LinkName.SIGNALS, LinkState.OK, "it shows nothing that the table of node signals knows")
    seen = "it shows " + ", ".join(one.what for one in shown)
    if all(one.answer is NodeAnswer.NOTE for one in shown):
        return Link(LinkName.SIGNALS, LinkState.OK, f"{seen}; gangs stay")
    return Link(LinkName.SIGNALS, LinkState.FAILED, seen, "the reference of node signals says who writes it and why")


def _of_vendor(node: Node, around: NodeSurroundings, vendor: Vendor) -> list[Link]:
    links = [_driver(node, around, vendor)]
    if vendor.component(ComponentKind.CONTAINER_TOOLKIT) is not None:
        links.append(component_link(node, around, vendor, ComponentKind.CONTAINER_TOOLKIT))
    if vendor.runtime_class is not None:
        links.append(_runtime_class(around, vendor, vendor.runtime_class.name))
    links.append(component_link(node, around, vendor, ComponentKind.DEVICE_PLUGIN))
    there = sorted(one for one, amount in node.capacity.items() if amount and vendor.has(one))
    if there:
        for resource in there:
            links += _of_resource(node, around, resource, vendor.title)
    else:
        todo = "the log of the device plugin says which devices it finds; if it finds none, look at the driver first"
        seen = f"the node has no {vendor.resources[0]}: no device plugin has registered it with the kubelet"
        links.append(Link(LinkName.CAPACITY, LinkState.FAILED, seen, todo, vendor.title, vendor.resources[0]))
    if vendor.features is not None or vendor.component(ComponentKind.FEATURE_DISCOVERY) is not None:
        links.append(_features(node, around, vendor))
    if vendor.partitions is not None:
        links.append(_partitions(node, around, vendor))
    links += [
        component_link(node, around, vendor, kind)
        for kind in (ComponentKind.EXPORTER, ComponentKind.VALIDATOR)
        if vendor.component(kind) is not None
    ]
    return links


def _driver(node: Node, around: NodeSurroundings, vendor: Vendor) -> Link:
    link = component_link(node, around, vendor, ComponentKind.DRIVER)
    found = version(vendor.driver, node.labels)
    source = f"version {found} by the node's labels" if found else ""
    state = node.labels.get(vendor.upgrade.label, "") if vendor.upgrade is not None else ""
    if vendor.upgrade is not None and state in vendor.upgrade.failed:
        seen = f"its upgrade has failed ({vendor.upgrade.label}={state}){f'; {source}' if source else ''}"
        return Link(LinkName.DRIVER, LinkState.FAILED, seen, "the driver's pod on this node has the log", vendor.title)
    if link.state is LinkState.FAILED:
        return link
    if found:
        by = f"; {link.seen}" if link.state is LinkState.OK else ""
        return Link(LinkName.DRIVER, LinkState.OK, f"{source}{by}", about=vendor.title)
    if link.state is LinkState.ABSENT:
        seen = "no pod installs it and no label has its version: it is part of the machine, or missing"
        return Link(LinkName.DRIVER, LinkState.ABSENT, seen, about=vendor.title)
    return link


def _runtime_class(around: NodeSurroundings, vendor: Vendor, name: str) -> Link:
    if isinstance(around.runtime_classes, Unread):
        return unread(LinkName.RUNTIME_CLASS, around.runtime_classes, vendor.title)
    if name in around.runtime_classes:
        return Link(LinkName.RUNTIME_CLASS, LinkState.OK, f"RuntimeClass {name} exists", about=vendor.title)
    seen = f"there is no RuntimeClass {name}: pods get the node's default runtime"
    return Link(LinkName.RUNTIME_CLASS, LinkState.ABSENT, seen, about=vendor.title)


def _unknown_plugin(around: NodeSurroundings, resource: str) -> Link:
    name = LinkName.DEVICE_PLUGIN
    if isinstance(around.pods, Unread):
        return unread(name, around.pods, resource, resource)
    known = [one.component(ComponentKind.DEVICE_PLUGIN) for one in vendors()]
    others = [
        pod
        for pod in around.pods
        if pod.is_plugin and not any(one is not None and pods_of(one, (pod,)) for one in known)
    ]
    if not others:
        seen = "no pod on this node mounts the kubelet's folder for device plugins: it runs outside of pods, or is gone"
        return Link(name, LinkState.ABSENT, seen, about=resource, resource=resource)
    sick = [one.full_name for one in others if not one.ready]
    if sick:
        seen = f"not ready, of the pods that mount the kubelet's folder for device plugins: {', '.join(sick)}"
        return Link(name, LinkState.FAILED, seen, "kubectl describe pod, and its log, say why", resource, resource)
    names = ", ".join(one.full_name for one in others)
    seen = f"ready, and mounting the kubelet's folder for device plugins: {names}"
    return Link(name, LinkState.OK, seen, about=resource, resource=resource)


def _of_resource(node: Node, around: NodeSurroundings, resource: str, about: str) -> list[Link]:
    total, left = node.capacity[resource], int(node.allocatable.get(resource, 0))
    if not total:
        todo = "if the device plugin should run, start it again; what runs with its devices runs on"
        seen = "0: its device plugin is gone, was removed, or finds no device"
        return [Link(LinkName.CAPACITY, LinkState.UNKNOWN, seen, todo, about, resource)]
    links = [
        Link(LinkName.CAPACITY, LinkState.OK, str(total), about=about, resource=resource),
        _allocatable(total, left, about, resource),
    ]
    return [*links, _allocations(around, left, about, resource)] if around.all_pods else links


def _allocatable(total: int, left: int, about: str, resource: str) -> Link:
    name = LinkName.ALLOCATABLE
    if left >= total:
        return Link(name, LinkState.OK, f"{left} of {total}", about=about, resource=resource)
    if left:
        seen = f"{left} of {total}: the device plugin calls {total - left} unhealthy"
        todo = "the plugin's log says which and why; repair or drain the node: new pods get the healthy ones only"
        return Link(name, LinkState.FAILED, seen, todo, about, resource)
    seen = f"0 of {total}: the device plugin is gone, or calls every device unhealthy"
    todo = "look at the device plugin and its log; until it is back, the kubelet refuses new pods with such devices"
    return Link(name, LinkState.FAILED, seen, todo, about, resource)


def _allocations(around: NodeSurroundings, left: int, about: str, resource: str) -> Link:
    name = LinkName.ALLOCATIONS
    if isinstance(around.pods, Unread):
        return unread(name, around.pods, about, resource)
    holders = [one for one in around.pods if one.device_requests.get(resource) and not one.ended]
    used = sum(one.device_requests[resource] for one in holders)
    seen = f"{used} of {left}{_named(holders, resource)}"
    if used <= left:
        return Link(name, LinkState.OK, seen, about=about, resource=resource)
    todo = (
        "one of these pods has a device that is no longer allocatable: gangctl doctor POD says if its health is known"
    )
    return Link(name, LinkState.FAILED, f"more than is allocatable: {seen}", todo, about, resource)


def _named(holders: list[WholePod], resource: str) -> str:
    if not holders:
        return ""
    names = [f"{one.full_name} {one.device_requests[resource]}" for one in holders[:_MOST_PODS]]
    more = len(holders) - _MOST_PODS
    return f": {', '.join(names)}{f' and {more} more pods' if more > 0 else ''}"


def _features(node: Node, around: NodeSurroundings, vendor: Vendor) -> Link:
    link = component_link(node, around, vendor, ComponentKind.FEATURE_DISCOVERY)
    labels = () if vendor.features is None else vendor.features.labels
    there = [f"{one}={node.labels[one]}" for one in labels if node.labels.get(one)]
    if link.state is LinkState.FAILED:
        return link
    if there:
        return Link(LinkName.FEATURE_LABELS, LinkState.OK, ", ".join(there), about=vendor.title)
    if link.state is LinkState.OK and labels:
        seen = f"{link.seen}, and the node has no label {labels[0]}"
        todo = "its log says which devices it finds; with Node Feature Discovery, look at that as well"
        return Link(LinkName.FEATURE_LABELS, LinkState.FAILED, seen, todo, vendor.title)
    return link


def _partitions(node: Node, around: NodeSurroundings, vendor: Vendor) -> Link:
    link = component_link(node, around, vendor, ComponentKind.PARTITION_MANAGER)
    rows = vendor.partitions
    assert rows is not None
    config, state = node.labels.get(rows.config, ""), node.labels.get(rows.state, "")
    if link.state is LinkState.FAILED or not (config or state):
        return link
    seen = f"{rows.title}: configuration {config or 'none'}, state {state or 'none yet'}"
    if state in rows.failed:
        todo = f"the log of the manager's pod says why; {rows.config}={config} is tried again when the label changes"
        return Link(LinkName.PARTITIONS, LinkState.FAILED, seen, todo, vendor.title)
    if state in rows.good:
        return Link(LinkName.PARTITIONS, LinkState.OK, seen, about=vendor.title)
    return Link(LinkName.PARTITIONS, LinkState.UNKNOWN, f"{seen}: it is not done", about=vendor.title)
