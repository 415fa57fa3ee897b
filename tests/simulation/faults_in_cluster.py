"""What goes wrong in the cluster: nodes, kubelets, pods, devices, the shared directory; and what users change."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gangctl.api.gangjob import Role
from gangctl.api.recovery import Unlimited, Windowed
from gangctl.core.facts.world import Device
from tests.simulation import kubelets, sidecars
from tests.simulation.faults_in_pods import box_of, partition
from tests.simulation.setups import setups
from tests.simulation.universe import Universe
from tests.simulation.values import Fault

MAX_LOST = 2
HOUR_MS = 3_600_000
POLICIES: tuple[dict[str, object], ...] = (
    {"isolation_timeout_seconds": 20},
    {"isolation_timeout_seconds": None},
    {"isolation_timeout_seconds": 60},
    {"stop_grace_period_seconds": 5},
    {"stop_grace_period_seconds": 40},
    {"planned_stop_grace_period_seconds": 20},
    {"planned_stop_grace_period_seconds": 120},
    {"lost_pod_grace_seconds": 20},
    {"lost_pod_grace_seconds": 30},
    {"barrier_timeout_seconds": 60},
    {"barrier_timeout_seconds": 240},
    {"budget": Unlimited(type="Unlimited")},
    {"budget": Windowed(type="Windowed", max_restarts=5, window_seconds=600)},
    {"replace_after": 1},
    {"replace_after": 4},
)
ISOLATIONS = 3
"""So many of these are isolation times."""


def _lose_node(u: Universe, target: int) -> None:
    box = box_of(u, target)
    if box is not None and len(u.lost) < MAX_LOST and not u.setup.local:  # One machine is the only node that there is.
        u.lost |= {box.node}
        partition(u, target)
        if box.pod in u.pods:
            u.note_lost(box.pod)


def _node_back(u: Universe, target: int) -> None:
    if u.lost:
        node = sorted(u.lost)[target % len(u.lost)]
        u.node_is_back(node)
        for uid, box in list(u.boxes.items()):
            if box.node == node:
                sidecars.reach(u, uid)


def _delete_pod(u: Universe, target: int) -> None:
    if u.pods:
        uid = sorted(u.pods)[target % len(u.pods)]
        if not u.pods[uid].deleting:
            u.delete_pod(uid)


def _delete_all(u: Universe, _target: int) -> None:
    for uid in [uid for uid, pod in u.pods.items() if not pod.deleting]:
        u.delete_pod(uid)


def _evict_pod(u: Universe, target: int) -> None:
    if u.pods:
        uid = sorted(u.pods)[target % len(u.pods)]
        condition = ("DisruptionTarget", "True", "EvictionByEvictionAPI")
        u.pods[uid] = replace(u.pods[uid], conditions=(condition,))
        _delete_pod(u, target)


def _exceed_storage(u: Universe, target: int) -> None:
    """Its kubelet evicts the pod for what it has written, and kills it a second later."""
    box = box_of(u, target)
    if box is not None and box.pod in u.pods and box.node not in u.lost and not box.exited:
        kubelets.end_containers(u, box.pod)
        u.pods[box.pod] = replace(u.pods[box.pod], reason="Evicted")


def _forget_pod(u: Universe, target: int) -> None:
    """Deleted by force: the API forgets it at once, and what runs in it runs on until the kubelet notices."""
    if u.pods:
        u.remove_pod(sorted(u.pods)[target % len(u.pods)])


def _spoil_device(u: Universe, target: int) -> None:
    if u.pods:
        uid = sorted(u.pods)[target % len(u.pods)]
        u.pods[uid] = replace(u.pods[uid], devices=(Device("nvidia.com/gpu", "gpu-0", "Unhealthy"),))


def _toggle(name: str) -> Fault:
    def fault(u: Universe, _target: int) -> None:
        setattr(u, name, not getattr(u, name))

    return fault


def _suspend(u: Universe, _target: int) -> None:
    u.change_spec(suspend=not u.spec.suspend)


def _restart(u: Universe, _target: int) -> None:
    u.change_spec(restart_token=u.spec.restart_token + "x")


def _lose_kubelet(u: Universe, target: int) -> None:
    """The node does not answer, and what runs on it runs on and speaks."""
    box = box_of(u, target)
    if box is not None and len(u.lost) < MAX_LOST and not u.setup.local:  # One machine is the only node that there is.
        u.lost |= {box.node}
        if box.pod in u.pods:
            u.note_lost(box.pod)


def _collect_pod(u: Universe, target: int) -> None:
    """The pod garbage collector ends a pod of a node that doesn't answer. No kubelet says so: it is not terminated."""
    found = [uid for uid, pod in sorted(u.pods.items()) if pod.node in u.lost]
    if found:
        uid = found[target % len(found)]
        condition = ("DisruptionTarget", "True", "DeletionByPodGC")
        u.pods[uid] = replace(u.pods[uid], conditions=(condition,), deleting=True)
        u.note_lost(uid)


def _delete_finished_pod(u: Universe, target: int) -> None:
    done = {name for attempt, name, _ in u.ghost.finished if attempt == u.ghost.ran[0]}
    found = [uid for uid, pod in sorted(u.pods.items()) if pod.member in done and not pod.deleting]
    if found:
        u.delete_pod(found[target % len(found)])


def _policy(u: Universe, target: int) -> None:
    """The user changes what is live: it counts from the moment at which everyone concerned has heard of it."""
    u.change_spec(recovery=u.spec.recovery.model_copy(update=POLICIES[target % len(POLICIES)]))


def _isolation(u: Universe, target: int) -> None:
    """The same, for what a member that is cut off never hears of."""
    _policy(u, target % ISOLATIONS)


@lru_cache(maxsize=64)
def _roles(setup: str, variant: int) -> tuple[Role, ...]:
    roles = setups()[setup].job.spec.roles
    last = roles[-1]
    spec = last.model_dump(by_alias=True, exclude_none=True)
    if variant == 1:
        spec["spares"] = last.spares + 1
    if variant == 2:
        spec["template"] = {**spec["template"], "metadata": {"annotations": {"changed": "yes"}}}
    return roles if variant == 0 else (*roles[:-1], Role.model_validate(spec))


def _change_roles(u: Universe, target: int) -> None:
    """Not while two controllers act: the model assumes that."""
    if len(u.leaders) < 2:
        u.change_spec(roles=_roles(u.setup.name, target % 3))
        u.ghost = u.ghost._replace(ran=(0, ()))  # Another job: what has finished was the old one.


def _skew_nodes(u: Universe, target: int) -> None:
    """The clocks of the nodes that pods are started on from now on."""
    u.node_skew = (-HOUR_MS, 0, HOUR_MS, 40_000)[target % 4]


IN_CLUSTER: dict[str, Fault] = {
    "a node is lost": _lose_node,
    "a kubelet is away": _lose_kubelet,
    "a node comes back": _node_back,
    "a pod is deleted": _delete_pod,
    "a finished pod is deleted": _delete_finished_pod,
    "the pods of all members are deleted": _delete_all,
    "a pod is evicted": _evict_pod,
    "a pod exceeds its storage": _exceed_storage,
    "a pod is deleted by force": _forget_pod,
    "a pod is garbage collected": _collect_pod,
    "a device is unhealthy": _spoil_device,
    "pods can or can't be created": _toggle("creation_fails"),
    "pods can or can't be started": _toggle("starts_fail"),
    "the clocks of nodes are off": _skew_nodes,
    "the user suspends or resumes": _suspend,
    "the user asks for a restart": _restart,
    "the policy changes": _policy,
    "the isolation time changes": _isolation,
    "the roles change": _change_roles,
}
