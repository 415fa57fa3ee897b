"""Degradation: a slow rank gets another pod, where a rule with ``onReasons: [DeviceDegraded]`` asks for it.

    leaves(rank) = it is slow (facts/slowness.py), the first rule that matches says so, and it was not moved before
                   and the rule doesn't count, or the budget allows one more restart

All ranks have the time to save, as in a drain, and the budget is charged only by a rule that counts. Where it is used
up, the gang trains on: a move that nothing forces must not end the job. A rank that is
slow in another pod as well must not be moved again: its work is slow, and not its device. One moves at a time, the
slowest; where no rule matches, a slow rank is only told (``record/degraded.py``).
"""

from __future__ import annotations

from gangctl.api.policy import Action, OnReason
from gangctl.api.reasons import Reason
from gangctl.core.facts import slowness
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.slowness import Slow
from gangctl.core.policy import budget
from gangctl.core.policy.rules import Verdict, verdict
from gangctl.words.faults import rank_slow
from gangsidecar.wire import Level


def fault(gang: Gang) -> Fault | None:
    """The slowest rank that is to be moved, as a fault; None if there is none."""
    if not any(OnReason.DEVICE_DEGRADED in rule.on_reasons for rule in gang.spec.pod_failure_policy.rules):
        return None
    before = moved(gang)
    found = (_fault(gang, one) for one in slowness.slow(gang) if one.rank not in before)
    return next((one for one in found if _may_move(gang, verdict(gang.spec, one))), None)


def _may_move(gang: Gang, said: Verdict) -> bool:
    counts = said.action is Action.COUNT
    return said.rule is not None and (not counts or budget.allows(gang.spec, gang.status, gang.now))


def moved(gang: Gang) -> frozenset[int]:
    """The ranks that were moved because they were slow, as far as the incidents of the status go back."""
    causes = (incident.cause for incident in gang.status.incidents)
    return frozenset(one.rank for one in causes if one.reason == Reason.DEVICE_DEGRADED and one.rank is not None)


def _fault(gang: Gang, one: Slow) -> Fault:
    pod = gang.pods[one.member]
    return Fault(
        Reason.DEVICE_DEGRADED,
        one.member,
        gang.now,
        pod.incarnation,
        rank=one.rank,
        node=pod.node,
        conditions=pod.conditions,
        level=Level.POD,
        message=rank_slow(one.own_ms, one.typical_ms, one.excess),
    )
