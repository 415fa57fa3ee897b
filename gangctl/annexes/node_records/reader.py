"""Read nodes and their records for `gangctl nodes` and `gangctl gate`, and clear the record of a node."""

import time
from collections import defaultdict
from typing import Any, Final

from gangctl.annexes.node_records import stored
from gangctl.annexes.node_records.gang_samples import Worker
from gangctl.annexes.node_records.records import NodeRecord, Records
from gangctl.api.gangjob import GangJob
from gangctl.api.names import ANNOTATION_WORKER, LABEL_UID
from gangctl.cli.errors import UserError, hint
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, Forbidden, NotFound
from gangctl.cluster.kube.decoding import Decoder
from gangctl.cluster.kube.projections import GANGS, nodes
from gangctl.cluster.kube.reflector import list_all
from gangctl.kubernetes.objects import Node
from gangctl.kubernetes.schema import RawWholePod
from gangctl.kubernetes.signals import SignalTable, default_rows

_NODES: Final = nodes(SignalTable(default_rows()))


def _worker(raw: RawWholePod) -> tuple[str, Worker]:
    """Return the UID of a pod's gang, and what it runs."""
    name = raw.metadata.annotations.get(ANNOTATION_WORKER)
    images = {one.image for one in raw.spec.containers if one.name == name}
    images |= {one.image_id for one in raw.status.container_statuses if one.name == name}
    return raw.metadata.labels.get(LABEL_UID, ""), Worker(raw.spec.node_name, tuple(sorted(images - {""})))


_WORKERS: Final = Decoder(RawWholePod, _worker)


async def read_records(client: Client, _namespace: str, *, controller: str) -> Records:
    """The records of a controller.

    Raises:
        UserError: there are none, or this user may not read them.
        ClusterError: the request failed.
    """
    return _records(await _config_map(client, controller), controller)


async def list_nodes(client: Client, _namespace: str) -> list[Node]:
    """All nodes of the cluster.

    Raises:
        UserError: this user may not list them.
        ClusterError: the request failed.
    """
    try:
        return list((await list_all(client, paths.NODES, _NODES)).items)
    except Forbidden:
        raise UserError("you lack the right to list nodes, by whose labels they are selected") from None


async def list_gangs(client: Client, namespace: str, *, selector: str) -> list[tuple[GangJob, list[Worker]]]:
    """The gangs of a namespace with these labels, the newest first, and their workers.

    Raises:
        UserError: this user may not list them.
        ClusterError: a request failed.
    """
    try:
        found = (await list_all(client, paths.gangs_path(namespace), GANGS, {"labelSelector": selector})).items
        pods = (await list_all(client, paths.pods(namespace), _WORKERS, {"labelSelector": LABEL_UID})).items
    except Forbidden:
        raise UserError(f"you lack the right to list gangjobs and pods in namespace {namespace}") from None
    workers = defaultdict[str, list[Worker]](list)
    for gang, worker in pods:
        workers[gang].append(worker)
    jobs = sorted((one.job for one in found if one.job is not None), key=lambda job: -job.metadata.creation_timestamp)
    return [(job, workers[job.metadata.uid]) for job in jobs]


async def clear(client: Client, _namespace: str, *, controller: str, node: str) -> None:
    """Take the weights off a node's record, since it was repaired.

    Raises:
        UserError: it has no record, or this user may not do that.
        ClusterError: the request failed.
    """
    found = await _config_map(client, controller)
    known = _records(found, controller)
    known = {**known, node: named(known, node).cleared()}
    found["data"] = {**(found.get("data") or {}), stored.KEY: stored.write(known, time.time())}
    metadata = found["metadata"]
    path = paths.config_map(metadata["namespace"], metadata["name"])
    try:
        await client.request("PUT", path, body=found)
    except Forbidden:
        raise UserError(f"you lack the right to update ConfigMap {metadata['name']}") from None


def named(records: Records, node: str) -> NodeRecord:
    """The record of a node.

    Raises:
        UserError: it has none.
    """
    if node in records:
        return records[node]
    raise UserError(
        f"no gang has run on a node {node!r} in the last days: {hint(node, sorted(records), 'none has a record')}"
    )


async def _config_map(client: Client, controller: str) -> dict[str, Any]:
    namespace, _, lease = controller.partition("/")
    name = stored.name_of_map(lease)
    try:
        return await client.get(paths.config_map(namespace, name))
    except NotFound:
        raise UserError(
            f"there is no ConfigMap {name} in namespace {namespace}: set nodeRecords.enabled in the chart's values, or "
            "select the controller with --controller NAMESPACE/NAME"
        ) from None
    except Forbidden:
        raise UserError(f"you lack the right to get ConfigMap {name} in namespace {namespace}") from None


def _records(found: dict[str, Any], controller: str) -> Records:
    try:
        return stored.read((found.get("data") or {}).get(stored.KEY, ""))
    except ValueError as error:
        raise UserError(f"the records of {controller} can't be read: {error}") from None
