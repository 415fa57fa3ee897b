"""Read the nodes, the pods and the gangs of a cluster for `gangctl placement`."""

from collections import defaultdict
from typing import Final, TypeVar

from gangctl.annexes.placement.survey import Report, report
from gangctl.cli.errors import UserError
from gangctl.cli.targets.gangjobs import GangJobs
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, Forbidden
from gangctl.cluster.kube.decoding import Decoder
from gangctl.cluster.kube.projections import nodes
from gangctl.cluster.kube.reflector import list_all
from gangctl.explain.why.world import Inventory
from gangctl.kubernetes.objects import WholePod, read_pod
from gangctl.kubernetes.schema import RawWholePod
from gangctl.kubernetes.signals import SignalTable, default_rows

V = TypeVar("V")
_NODES: Final = nodes(SignalTable(default_rows()))
_PODS: Final = Decoder(RawWholePod, read_pod)
_ON_NODES: Final = "status.phase!=Succeeded,status.phase!=Failed"


async def survey(client: Client, namespace: str, *, key: str) -> Report:
    """Survey the cluster. ``key``: the label of nodes that names their failure domain.

    Raises:
        UserError: this user may not list nodes, pods or GangJobs.
        ClusterError: a request failed for another reason.
    """
    found = await _list(client, paths.NODES, _NODES, "nodes")
    pods = await _list(client, paths.pods(), _PODS, "pods in all namespaces", fieldSelector=_ON_NODES)
    try:
        gangs = await GangJobs(client, namespace, everywhere=True).all()
    except Forbidden:
        raise _lacks("gangjobs in all namespaces") from None
    there = defaultdict[str, list[WholePod]](list)
    for pod in pods:
        if not pod.ended:
            there[pod.node].append(pod)
    waiting = tuple(pod for pod in there.pop("", ()) if not (pod.deleting or pod.gates))
    cluster = Inventory(found, {name: tuple(here) for name, here in there.items()})
    return report(cluster, waiting, [gang.job for gang in gangs if gang.job is not None], key)


async def _list(client: Client, path: str, decoder: Decoder[V], what: str, **query: str) -> tuple[V, ...]:
    try:
        return (await list_all(client, path, decoder, query)).items
    except Forbidden:
        raise _lacks(what) from None


def _lacks(what: str) -> UserError:
    return UserError(f"you lack the right to list {what}: placement looks at the whole cluster")
