"""The pods that a vendor runs on a node: the driver's, the toolkit's, the device plugin's and others.

The rule::

    ok      one of them is ready
    failed  one is there and none is ready, or a DaemonSet selects the node and has no pod there
    absent  nothing wants one there
"""

from __future__ import annotations

from typing import Final

from gangctl.explain.doctor import placement
from gangctl.explain.doctor.facts import DaemonSet, Node, Pod, Surroundings, Unread
from gangctl.explain.doctor.links import Link, LinkName, LinkState, unread
from gangctl.explain.doctor.table import Component, Kind, Vendor

LINKS: Final = {
    Kind.DRIVER: LinkName.DRIVER,
    Kind.CONTAINER_TOOLKIT: LinkName.CONTAINER_TOOLKIT,
    Kind.DEVICE_PLUGIN: LinkName.DEVICE_PLUGIN,
    Kind.FEATURE_DISCOVERY: LinkName.FEATURE_LABELS,
    Kind.EXPORTER: LinkName.EXPORTER,
    Kind.PARTITION_MANAGER: LinkName.PARTITIONS,
    Kind.VALIDATOR: LinkName.VALIDATOR,
}


def component_link(node: Node, around: Surroundings, vendor: Vendor, kind: Kind) -> Link:
    """The link of one kind of pods on a node."""
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


def pods_of(component: Component, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """The pods of a component; those that are being deleted last."""
    found = [one for one in pods if component.selects(one.labels, (part.name for part in one.containers))]
    return tuple(sorted(found, key=lambda one: (one.deleting, one.full_name)))


def image_of(component: Component, pod: Pod) -> str:
    """The image of the container that makes the pod one of the component."""
    names = {one.container for one in component.pods if one.container}
    named = (one.image for one in pod.containers if one.name in names)
    return next(named, pod.containers[0].image if pod.containers else "")


def _missing(node: Node, around: Surroundings, component: Component, name: LinkName, about: str) -> Link:
    none = "there is no such pod on the node"
    if isinstance(around.daemon_sets, Unread):
        why = f"{none}; whether one should be there isn't known: you lack the right to {around.daemon_sets.right}"
        return Link(name, LinkState.UNKNOWN, why, about=about)
    wanted = [one for one in around.daemon_sets if component.selects(one.labels, one.containers)]
    kept = [(one, placement.unselected(one, node)) for one in wanted]
    selecting = next((one for one, why in kept if not why), None)
    if selecting is None:
        why = f"; DaemonSet {kept[0][0].full_name}: {kept[0][1]}" if kept else ""
        return Link(name, LinkState.ABSENT, f"{none}{why}", about=about)
    return _should_be_there(selecting, node, name, about)


def _should_be_there(daemon_set: DaemonSet, node: Node, name: LinkName, about: str) -> Link:
    taint = placement.untolerated(daemon_set, node)
    if taint is not None:
        written = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        seen = f"DaemonSet {daemon_set.full_name} has no pod here: it does not tolerate the taint {written}"
        return Link(name, LinkState.FAILED, seen, "add the toleration to the DaemonSet, or remove the taint", about)
    seen = f"DaemonSet {daemon_set.full_name} selects this node and has no pod here"
    todo = f"kubectl describe daemonset -n {daemon_set.namespace} {daemon_set.name} has the controller's Events"
    return Link(name, LinkState.FAILED, seen, todo, about)


def _image(pod: Pod, component: Component) -> str:
    image = image_of(component, pod)
    return f" ({image})" if image else ""


def _why(pod: Pod) -> str:
    if pod.deleting:
        return ": it is being deleted"
    if not pod.waiting and pod.initializing:
        return f": its init container {pod.initializing} has not ended"
    words = pod.waiting or pod.reason or pod.phase
    return f": {words}" if words else ""


def _look(pod: Pod) -> str:
    return f"kubectl describe pod -n {pod.namespace} {pod.name}, and kubectl logs --all-containers of it"
