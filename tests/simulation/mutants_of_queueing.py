"""Mutants of queueing: pods without admission, stops for want of an answer, quota given back too soon or never."""

from __future__ import annotations

from tests.simulation.mutant import one

PODS = "gangctl/core/policy/pods.py"
QUEUEING = "gangctl/core/policy/queueing.py"

MUTANTS = (
    one(
        "a pod is created while it isn't known what the queue says",
        PODS,
        "    return queueing.is_admitted(gang) and admission.creates(gang, status)\n",
        "    return admission.creates(gang, status)\n",
    ),
    one(
        "a gang stops while it isn't known what the queue says",
        QUEUEING,
        "    return gang.observed.queue.known and not is_admitted(gang)\n",
        "    return not is_admitted(gang)\n",
    ),
    one(
        "what the queue has admitted counts for other roles as well",
        QUEUEING,
        "        and workload.roles_hash == roles_hash(gang.spec.roles)\n    )\n\n\ndef waiting",
        "    )\n\n\ndef waiting",
    ),
    one(
        "quota is given back while pods still stop",
        QUEUEING,
        "    return any(not pod.terminated and not (pod.deleting and on_lost_node(gang, pod)) for pod",
        "    return any(not pod.terminated and not pod.deleting for pod",
    ),
    one(
        "a gang that the queue calls back keeps its quota",
        QUEUEING,
        "    if one.evicted and one.reserved and status.phase is GangPhase.SUSPENDED:\n",
        "    if one.evicted and one.reserved and status.phase is GangPhase.HELD:\n",
    ),
    one(
        "a gang that has ended keeps its quota",
        QUEUEING,
        "    if one is None or one.ended or _uses_quota(gang):\n        return ()\n    verb",
        "    if one is None or gang.observed.pods or one.ended:\n        return ()\n    verb",
    ),
)
