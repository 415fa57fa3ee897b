"""Read for `gangctl doctor` the nodes and pods of a cluster; where the user lacks a right, the answer names the right.

The fleet needs no list of all pods: those that the table of vendors knows are selected by their labels.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, TypeVar

from pydantic import TypeAdapter

from gangctl.annexes.doctor.links import Inside, NodeSurroundings, Unread
from gangctl.annexes.doctor.pod_chain import VARIABLES
from gangctl.annexes.doctor.survey import FleetSurvey, NodeSurvey, PodSurvey, Survey
from gangctl.annexes.doctor.table import ANY, vendor_of, vendors
from gangctl.cli.errors import UserError, hint
from gangctl.cli.targets.pod_exec import PERMISSIONS, run_python
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound, Rejected
from gangctl.cluster.kube.decoding import Decoder
from gangctl.cluster.kube.projections import nodes
from gangctl.cluster.kube.reflector import list_all
from gangctl.kubernetes.objects import Node, WholePod, read_daemon_set, read_pod
from gangctl.kubernetes.schema import Raw, RawDaemonSet, RawNamed, RawWholePod
from gangctl.kubernetes.signals import SignalTable, default_rows

V = TypeVar("V")
_NODES: Final = nodes(SignalTable(default_rows()))
_PODS: Final = Decoder(RawWholePod, read_pod)
_DAEMON_SETS: Final = Decoder(RawDaemonSet, read_daemon_set)
_NAMES: Final = Decoder(RawNamed, lambda raw: raw.metadata.name)
LOOK_SECONDS: Final = 30.0
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_KINDS: Final = {kind: word for word in ("node", "pod") for kind in (word, f"{word}s", word[:2])}
_LOOK: Final = """\
import glob, json, os
files = sorted(name for pattern in {patterns!r} for name in glob.glob(pattern))
print(json.dumps({{"files": files, "env": {{name: os.environ[name] for name in {names!r} if name in os.environ}}}}))
"""


class _Looked(Raw):
    files: tuple[str, ...]
    env: dict[str, str]


_LOOKED: Final = TypeAdapter(_Looked)


async def survey(client: Client, namespace: str, *, subject: str, execute: bool) -> Survey:
    """Read a node, a pod of the namespace with its node, or, without a subject, all nodes.

    Args:
        client: of the cluster.
        namespace: that of the pod.
        subject: ``NAME``, ``node/NAME`` or ``pod/NAME``; empty = all nodes.
        execute: whether a program is to look into the pod's container.

    Raises:
        UserError: there is no such node or pod, or the nodes can't be listed.
        ClusterError: a request failed for another reason than a missing right.
    """
    if not subject:
        return await _fleet(client)
    kind, name = _parsed(subject)
    if kind != "pod":
        found = await _node(client, name)
        if isinstance(found, Node) or kind == "node":
            return await _node_survey(client, name, _there(found, name))
    else:
        found = None
    pod = await _pod(client, namespace, name)
    if pod is not None:
        return await _pod_survey(client, pod, execute=execute)
    if isinstance(found, Unread):  # it may be a node that this user may not read
        return await _node_survey(client, name, found)
    raise UserError(await _missing(client, namespace, name, kind))


async def _fleet(client: Client) -> FleetSurvey:
    found = await _list(client, paths.NODES, "list nodes", _NODES)
    if isinstance(found, Unread):
        raise UserError(f"you lack the right to {found.right}: doctor NODE and doctor POD need less")
    pods = await _vendor_pods(client)
    daemon_sets, runtime_classes = await _daemon_sets(client), await _runtime_classes(client)
    by_node = defaultdict[str, list[WholePod]](list)
    for one in () if isinstance(pods, Unread) else pods:
        by_node[one.node].append(one)
    members = tuple(
        (
            one,
            NodeSurroundings(
                pods=pods if isinstance(pods, Unread) else tuple(by_node[one.name]),
                all_pods=False,
                daemon_sets=daemon_sets,
                runtime_classes=runtime_classes,
            ),
        )
        for one in found
    )
    unread = tuple(one for one in (pods, daemon_sets, runtime_classes) if isinstance(one, Unread))
    return FleetSurvey(members, unread)


async def _node_survey(client: Client, name: str, node: Node | Unread) -> NodeSurvey:
    right = "list pods in all namespaces"
    pods = await _list(client, paths.pods(), right, _PODS, fieldSelector=f"spec.nodeName={name}")
    here = pods if isinstance(pods, Unread) else tuple(one for one in pods if one.node == name)
    around = NodeSurroundings(
        pods=here, daemon_sets=await _daemon_sets(client), runtime_classes=await _runtime_classes(client)
    )
    return NodeSurvey(name, node, around)


async def _pod_survey(client: Client, pod: WholePod, *, execute: bool) -> PodSurvey:
    inside = await _inside(client, pod) if execute else None
    if not pod.node:
        return PodSurvey(pod, None, inside)
    found = await _node(client, pod.node)
    if found is None:
        return PodSurvey(pod, None, inside)
    return PodSurvey(pod, await _node_survey(client, pod.node, found), inside)


async def _inside(client: Client, pod: WholePod) -> Inside:
    container = next((one.name for one in pod.containers if one.devices), pod.containers[0].name)
    known = [vendor for resource in pod.device_requests if (vendor := vendor_of(resource)) is not None]
    patterns = sorted({glob for one in known for glob in one.files.glob})
    program = _LOOK.format(patterns=patterns, names=list(VARIABLES))
    try:
        done = await run_python(client, pod.namespace, pod.name, container, program, LOOK_SECONDS)
    except Rejected as error:
        return Inside(container=container, failure=f"you lack the right to {PERMISSIONS}: {error.message}")
    except ClusterError as error:
        return Inside(container=container, failure=str(error))
    if done.code != 0:
        said = done.err.strip() or done.why
        return Inside(container=container, failure=f"container {container} could not run python3: {said}")
    try:
        seen = _LOOKED.validate_json(done.out)
    except ValueError:
        return Inside(container=container, failure=f"the program in container {container} printed something else")
    return Inside(container=container, files=seen.files, env=seen.env)


async def _node(client: Client, name: str) -> Node | Unread | None:
    try:
        body = await client.request("GET", f"{paths.NODES}/{name}")
    except NotFound:
        return None
    except Rejected:
        return Unread("get nodes")
    return _NODES.item(body)


async def _pod(client: Client, namespace: str, name: str) -> WholePod | None:
    try:
        body = await client.request("GET", paths.pod(namespace, name))
    except NotFound:
        return None
    return _PODS.item(body)


async def _vendor_pods(client: Client) -> tuple[WholePod, ...] | Unread:
    """The pods that the table of vendors knows, of all nodes."""
    found: dict[str, WholePod] = {}
    for selector in _selectors():
        right = "list pods in all namespaces"
        page = await _list(client, paths.pods(), right, _PODS, labelSelector=selector)
        if isinstance(page, Unread):
            return page
        found |= {one.full_name: one for one in page}
    return tuple(found.values())


def _selectors() -> list[str]:
    """Label selectors, one for each key, that together select all pods of the table."""
    values = defaultdict[str, set[str]](set)
    for row in (pods for vendor in vendors() for component in vendor.components for pods in component.pods):
        key, value = next(iter(row.labels.items()))
        values[key].add(value)
    return [key if ANY in known else f"{key} in ({','.join(sorted(known))})" for key, known in sorted(values.items())]


async def _daemon_sets(client: Client) -> tuple[WholePod, ...] | Unread:
    return await _list(client, "/apis/apps/v1/daemonsets", "list daemonsets.apps in all namespaces", _DAEMON_SETS)


async def _runtime_classes(client: Client) -> tuple[str, ...] | Unread:
    return await _list(client, "/apis/node.k8s.io/v1/runtimeclasses", "list runtimeclasses.node.k8s.io", _NAMES)


async def _list(client: Client, path: str, right: str, decoder: Decoder[V], **query: str) -> tuple[V, ...] | Unread:
    try:
        return (await list_all(client, path, decoder, query)).items
    except NotFound:
        raise
    except Rejected:
        return Unread(right)


def _parsed(subject: str) -> tuple[str, str]:
    """Kind and name; an empty kind is a node or a pod."""
    kind, slash, name = subject.rpartition("/")
    if slash and kind.lower() not in _KINDS:
        raise UserError(f"{subject!r:.80} isn't a node or a pod: use NAME, node/NAME or pod/NAME")
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r:.80} is not a valid name of a node or pod: use lower-case letters, digits, dashes and dots"
        )
    return _KINDS.get(kind.lower(), ""), name


def _there(found: Node | Unread | None, name: str) -> Node | Unread:
    if found is None:
        raise UserError(f"there is no node {name!r}: kubectl get nodes lists them")
    return found


async def _missing(client: Client, namespace: str, name: str, kind: str) -> str:
    """Return the message that there is no such node or pod, with similar names as far as this user may list them."""
    known: Sequence[str] = ()
    for path in (paths.pods(namespace), *(() if kind == "pod" else (paths.NODES,))):
        found = await _list(client, path, "", _NAMES)
        known = [*known, *(() if isinstance(found, Unread) else found)]
    what = "pod" if kind == "pod" else "node, and no pod"
    return f"there is no {what} {name!r} in namespace {namespace}: {hint(name, known, 'it has no pods')}"
