"""Pods without a node: what the scheduler sees of each node, and what to do.

The rule: pods that ask for the same are one finding. Figures are of the nodes that would do if they had enough left.
Enough in total means enough for all of these pods together; then moving others is a way, and otherwise it is not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from gangctl.explain.why.filters import Filter, FilterRefusal
from gangctl.explain.why.findings import Finding, FindingKind, NodeRow, amount, many
from gangctl.explain.why.walk import Moves, NodeFit, Packing, Room, pack, rooms, scheduler_message, walk
from gangctl.explain.why.walk import moves as possible_moves
from gangctl.explain.why.world import GangSurroundings, Inventory
from gangctl.kubernetes.objects import RESOURCE_CLAIMS, WholePod
from gangctl.words.text import counted, listed

MAX_PODS: Final = 3
"""Pods on a node that are named."""
_FIXES: Final[Mapping[Filter, str]] = {
    Filter.NODE_UNSCHEDULABLE: "kubectl uncordon NODE when it may have pods again",
    Filter.TAINT_TOLERATION: "add a toleration to the template, or remove the taint: kubectl taint node NODE KEY-",
    Filter.NODE_AFFINITY: "label nodes as the template asks, or correct its nodeSelector or node affinity",
    Filter.NODE_PORTS: "leave the host port to one pod a node, or take it out of the template",
    Filter.VOLUME_BINDING: "create or correct the claim, or let the pod go where its volume is",
    Filter.INTER_POD_AFFINITY: "add nodes, or loosen the pod affinity or spec.placement",
}


def find_unscheduled(around: GangSurroundings, member_of: Mapping[str, str], end: str) -> Iterator[Finding]:
    """Find out why pods of the gang have no node.

    Args:
        around: What was read.
        member_of: Pod -> member.
        end: What happens next, in words: until when the gang waits.
    """
    own = frozenset(pod.uid for pod in around.pods)
    for _, group in groupby(sorted(around.waiting, key=_alike), key=_alike):
        pods = sorted(group, key=lambda pod: pod.name)
        members = tuple(sorted(member_of.get(pod.name, pod.name) for pod in pods))
        yield _finding(pods, members, around.cluster, own, end)


def _alike(pod: WholePod) -> str:
    """The same for pods that the scheduler treats alike."""
    asked = (sorted(pod.requests.items()), pod.node_selector, pod.affinity, pod.tolerations, pod.gates)
    return repr((asked, pod.claims, sorted(pod.ports), bool(pod.unscheduled)))


def _finding(
    pods: Sequence[WholePod], members: tuple[str, ...], cluster: Inventory | None, own: frozenset[str], end: str
) -> Finding:
    first, since = pods[0], min(pod.created_at for pod in pods)
    has = "has" if len(members) == 1 else "have"
    if first.gates:
        return Finding(
            kind=FindingKind.SCHEDULING_GATED,
            seen=f"{many(members)} {has} the scheduling gate {listed(first.gates)}",
            next="no scheduler looks at such a pod until the gate is removed",
            do="look at what sets this gate: a queue or an admission webhook",
            members=members,
            since=since,
        )
    if cluster is None:
        return Finding(
            kind=FindingKind.UNSCHEDULABLE,
            seen=f"{many(members)} {has} no node: {first.unscheduled or 'no scheduler has answered yet'}",
            next=end,
            do="compare what the pods request with the nodes: kubectl describe nodes",
            members=members,
            since=since,
        )
    packing = pack(pods, cluster)
    lacking = packing.left[0] if packing.left else first
    answers = walk(lacking, packing.after)
    tainted = _tainted(first, cluster)
    if not packing.left:
        return replace(_fits(pods, members, packing, since), tainted=tainted)
    found = rooms(lacking, answers, packing.after)
    seen, kind, do, moves = _judged(pods, packing, answers, found, own)
    return Finding(
        kind=kind,
        seen=f"{many(members)} {has} no node: {seen}",
        next=end,
        do=do,
        members=members,
        since=since,
        told=scheduler_message(answers),
        rooms=found,
        nodes=tuple(_row(answer, found, cluster) for answer in answers),
        moves=moves,
        tainted=tainted,
        unread=first.unread,
    )


def _tainted(pod: WholePod, cluster: Inventory) -> tuple[str, ...]:
    """The tainted devices of the nodes that would do, if the pod has resource claims."""
    if RESOURCE_CLAIMS not in pod.unread:
        return ()
    names = ["", *(one.node.name for one in walk(pod, cluster) if one.is_open)]
    return tuple(device for name in names for device in cluster.tainted.get(name, ()))


def _fits(pods: Sequence[WholePod], members: tuple[str, ...], packing: Packing, since: float) -> Finding:
    first = pods[0]
    nodes = listed(sorted({node for _, node in packing.placed}))
    if not first.unscheduled:
        return Finding(
            kind=FindingKind.NO_SCHEDULER,
            seen=f"no scheduler has looked at {many(members)}, though there is room on {nodes}",
            next="the gang waits until one does",
            do=f"check that the scheduler {first.scheduler or 'default-scheduler'} runs: the template names it",
            members=members,
            since=since,
            unread=first.unread,
        )
    return Finding(
        kind=FindingKind.FITS,
        seen=f"{many(members)} would fit now on {nodes}; the scheduler last said: {first.unscheduled}",
        next="the scheduler tries them again, after a back-off of at most 10 s or when the cluster changes",
        do="if that stays so, look at what is not judged here: " + (listed(first.unread) or "the scheduler's own log"),
        members=members,
        since=since,
        unread=first.unread,
    )


def _judged(
    pods: Sequence[WholePod],
    packing: Packing,
    answers: Sequence[NodeFit],
    found: Sequence[Room],
    own: frozenset[str],
) -> tuple[str, FindingKind, str, Moves | None]:
    """Return what is wrong, of which kind it is, what to do, and what could move."""
    if not any(one.is_open for one in answers):
        return *_no_node(answers), None
    placed, lacking = len(packing.placed), packing.left[0]
    some = f"there is room for {placed} of {len(pods)}; " if placed else ""
    each = "it needs" if len(pods) == 1 else "each needs"
    large = next((one for one in found if one.needs > one.largest), None)
    if large is not None:
        text = f"{each} {_of(large)}, and no node that would do has more than {amount(large.resource, large.largest)}"
        return text, FindingKind.TOO_LARGE, "lower the request, or add nodes that have as much", None
    scarce = next((one for one in found if one.needs * len(packing.left) > one.free), None)
    if scarce is not None:
        free, more = amount(scarce.resource, scarce.free), scarce.needs * len(packing.left) - scarce.free
        text = f"{some}{each} {_of(scarce)}, and {free} {_is(free)} free{' beside that' if placed else ' in total'}"
        do = f"add nodes with {amount(scarce.resource, more)} more {scarce.resource}, free some, or lower the request"
        return text, FindingKind.NOT_ENOUGH, do, None
    figures = "; ".join(
        f"{amount(one.resource, one.free)} {one.resource} free in total, at most {amount(one.resource, one.most)} on "
        "one node"
        for one in found
    )
    text = f"{some}{each} {listed([_of(one) for one in found])}; enough in total, not on one node: {figures}"
    moves = possible_moves(lacking, answers, packing.after, own)
    return text, FindingKind.FRAGMENTED, _defragment(moves, packing), moves


def _defragment(moves: Moves | None, packing: Packing) -> str:
    if moves is None:
        return (
            "no few pods that could move would make room: add nodes, lower the request, or ask for less on each of "
            "more pods"
        )
    named = listed([f"{one.pod} (to {one.to})" for one in moves.moves])
    them = "it" if len(moves.moves) == 1 else "them"
    others = len(packing.left) - 1
    rest = f", and then again for {others} more" if others else ""
    lone = [one.pod for one in moves.moves if not one.owner]
    careful = f"; {listed(lone)} {'has' if len(lone) == 1 else 'have'} no controller and would not come back" * bool(
        lone
    )
    return (
        f"make room on {moves.node}{rest}: move {named}, with kubectl cordon {moves.node}, kubectl delete pod for "
        f"{them}, kubectl uncordon {moves.node}{careful}; or lower the request, or add a node"
    )


def _no_node(answers: Sequence[NodeFit]) -> tuple[str, FindingKind, str]:
    if not answers:
        return "the cluster has no nodes", FindingKind.NO_NODE, "add nodes"
    reasons: dict[Filter, list[str]] = {}
    details: dict[Filter, FilterRefusal] = {}
    for one in answers:
        refusal = next(each for each in one.refusals if each.filter is not Filter.NODE_RESOURCES_FIT)
        reasons.setdefault(refusal.filter, []).append(one.node.name)
        details.setdefault(refusal.filter, refusal)
    text = "; ".join(
        f"{listed(nodes)} {'is' if len(nodes) == 1 else 'are'} cordoned"
        if which is Filter.NODE_UNSCHEDULABLE
        else f"{listed(nodes)}: {details[which].said.removeprefix('node(s) ')} ({details[which].detail})"
        for which, nodes in reasons.items()
    )
    return f"no node would do, whatever is free: {text}", FindingKind.NO_NODE, "; ".join(_FIXES[one] for one in reasons)


def _row(answer: NodeFit, found: Sequence[Room], cluster: Inventory) -> NodeRow:
    """A node's line. Figures are those of the first scarce resource; of what else is short, the reason tells."""
    name, why = (
        answer.node.name,
        "; ".join(
            one.said.removeprefix("node(s) ") + (f" ({one.detail})" if one.detail else "") for one in answer.first
        ),
    )
    if not found or not answer.is_open:
        return NodeRow(name, why=why or "fits")
    resource = found[0].resource
    there = cluster.pods.get(name, ())
    of = answer.node.allocatable.get(resource, found[0].needs * 0)
    left = of - sum((one.requests.get(resource, of * 0) for one in there), of * 0)
    users = sorted(
        ((one.requests[resource], one.full_name) for one in there if one.requests.get(resource)),
        key=lambda each: (-each[0], each[1]),
    )
    shown = [f"{pod} ({amount(resource, size)})" for size, pod in users[:MAX_PODS]]
    if len(users) > MAX_PODS:
        shown.append(counted(len(users) - MAX_PODS, "more pod"))
    needs, left_over, all_of_it = (amount(resource, each) for each in (found[0].needs, left, of))
    return NodeRow(name, needs, left_over, all_of_it, why or "fits", ", ".join(shown))


def _of(room: Room) -> str:
    return f"{amount(room.resource, room.needs)} {room.resource}"


def _is(number: str) -> str:
    return "is" if number == "1" else "are"
