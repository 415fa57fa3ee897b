"""The pods that a vendor runs on a node: the driver's, the toolkit's, the device plugin's and others.

The rule::

    ok      one of them is ready
    failed  one is there and none is ready, or a DaemonSet selects the node and has no pod there
    absent  nothing wants one there

Whether a DaemonSet selects a node is decided by its node selector, its required affinity and its tolerations
(Kubernetes, pkg/controller/daemon: predicates, and the tolerations that the controller adds to each pod).
"""

from typing import Final

from gangctl.annexes.doctor.links import Link, LinkName, LinkState, NodeSurroundings, Unread, unread
from gangctl.annexes.doctor.table import Component, ComponentKind, Vendor
from gangctl.core.facts.node_affinity import Taint, has_required_affinity, untolerated_taints
from gangctl.kubernetes.objects import Node, WholePod

_TOLERATED: Final = frozenset(
    f"node.kubernetes.io/{kind}"
    for kind in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
)
"""Taints that the DaemonSet controller makes all its pods tolerate."""


def _unselected(daemon_set: WholePod, node: Node) -> str:
    """Return which label keeps the DaemonSet from the node; empty if it selects the node."""
    for key, value in daemon_set.node_selector.items():
        if node.labels.get(key) != value:
            has = f"has {key}={node.labels[key]}" if key in node.labels else "lacks it"
            return f"it selects nodes with {key}={value}, and this one {has}"
    try:
        is_wanted = has_required_affinity(daemon_set.affinity, node.name, node.labels)
    except (AttributeError, KeyError, TypeError, ValueError):  # A label that is compared by number and is none.
        is_wanted = False
    return "" if is_wanted else "its node affinity does not match the node's labels"


def _untolerated(daemon_set: WholePod, node: Node) -> Taint | None:
    """The taint of the node that keeps the DaemonSet's pods away; None if none does."""
    kept = (one for one in node.taints if one.key not in _TOLERATED)
    return next(iter(untolerated_taints(daemon_set.tolerations, kept)), None)


LINKS: Final = {
    ComponentKind.DRIVER: LinkName.DRIVER,
    ComponentKind.CONTAINER_TOOLKIT: LinkName.CONTAINER_TOOLKIT,
    ComponentKind.DEVICE_PLUGIN: LinkName.DEVICE_PLUGIN,
    ComponentKind.FEATURE_DISCOVERY: LinkName.FEATURE_LABELS,
    ComponentKind.EXPORTER: LinkName.EXPORTER,
    ComponentKind.PARTITION_MANAGER: LinkName.PARTITIONS,
    ComponentKind.VALIDATOR: LinkName.VALIDATOR,
}


def component_link(node: Node, around: NodeSurroundings, vendor: Vendor, kind: ComponentKind) -> Link:
    name, about = LINKS[kind], vendor.title
    component = vendor.component(kind)
    if component is None:
        return Link(name, LinkState.ABSENT, f"the table knows no such pods of {vendor.title}", about=about)
    if isinstance(around.pods, Unread):
        return unread(name, around.pods, about)
    found = pods_of(component, around.pods)
    if not found:
        return _missing(node, around, component, name, about)
    ready = next((one for one in found if one.ready), None)
    if ready is not None:
        return Link(name, LinkState.OK, f"pod {ready.full_name} is ready{_image(ready, component)}", about=about)
    sick = found[0]
    return Link(name, LinkState.FAILED, f"pod {sick.full_name} is not ready{_why(sick)}", _look(sick), about)


def pods_of(component: Component, pods: tuple[WholePod, ...]) -> tuple[WholePod, ...]:
    """The pods of a component; those that are being deleted last."""
    found = [one for one in pods if component.selects(one)]
    return tuple(sorted(found, key=lambda one: (one.deleting, one.full_name)))


def image_of(component: Component, pod: WholePod) -> str:
    """The image of the container that makes the pod one of the component."""
    names = {one.container for one in component.pods if one.container}
    named = (one.image for one in pod.containers if one.name in names)
    return next(named, pod.containers[0].image if pod.containers else "")


def _missing(node: Node, around: NodeSurroundings, component: Component, name: LinkName, about: str) -> Link:
    none = "there is no such pod on the node"
    if isinstance(around.daemon_sets, Unread):
        why = f"{none}; whether one should be there isn't known: you lack the right to {around.daemon_sets.right}"
        return Link(name, LinkState.UNKNOWN, why, about=about)
    candidates = [one for one in around.daemon_sets if component.selects(one)]
    kept = [(one, _unselected(one, node)) for one in candidates]
    selecting = next((one for one, why in kept if not why), None)
    if selecting is None:
        why = f"; DaemonSet {kept[0][0].full_name}: {kept[0][1]}" if kept else ""
        return Link(name, LinkState.ABSENT, f"{none}{why}", about=about)
    return _should_be_there(selecting, node, name, about)


def _should_be_there(daemon_set: WholePod, node: Node, name: LinkName, about: str) -> Link:
    taint = _untolerated(daemon_set, node)
    if taint is not None:
        seen = f"DaemonSet {daemon_set.full_name} has no pod here: it does not tolerate the taint {taint}"
        return Link(name, LinkState.FAILED, seen, "add the toleration to the DaemonSet, or remove the taint", about)
    seen = f"DaemonSet {daemon_set.full_name} selects this node and has no pod here"
    todo = f"kubectl describe daemonset -n {daemon_set.namespace} {daemon_set.name} has the controller's Events"
    return Link(name, LinkState.FAILED, seen, todo, about)


def _image(pod: WholePod, component: Component) -> str:
    image = image_of(component, pod)
    return f" ({image})" if image else ""


def _why(pod: WholePod) -> str:
    if pod.deleting:
        return ": it is being deleted"
    if not pod.waiting and pod.initializing:
        return f": its init container {pod.initializing} has not ended"
    words = pod.waiting or pod.reason or pod.phase
    return f": {words}" if words else ""


def _look(pod: WholePod) -> str:
    return f"kubectl describe pod -n {pod.namespace} {pod.name}, and kubectl logs --all-containers of it"
