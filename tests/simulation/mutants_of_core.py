"""Mutants of the barrier and the lifecycle, of ranks and of pods that are replaced."""

from __future__ import annotations

from tests.simulation.mutant import Mutant, Patch, one

MUTANTS = (
    one(
        "members are told before the status is stored",
        "tests/simulation/controller.py",
        "        u.leaders[number] = thought._replace(plan=plan)\n",
        "        u.leaders[number] = thought._replace(plan=plan, status=plan.status)\n        tell_all(u, number)\n",
    ),
    Mutant(
        "the machine takes a Run of any attempt",
        (
            Patch(
                "sidecar/gangsidecar/supervisor/machine/directives.py",
                "        if new.order < old.order or",
                "        if (new.verb is not Verb.RUN and new.order < old.order) or",
            ),
            Patch(
                "sidecar/gangsidecar/supervisor/machine/directives.py",
                "    if state.phase is not Phase.READY or old is None or old.attempt != new.attempt:\n",
                "    if state.phase is not Phase.READY or old is None:\n",
            ),
        ),
    ),
    one(
        "the machine takes a Run for another session",
        "sidecar/gangsidecar/supervisor/machine/directives.py",
        "run is None or run.session != state.session or state.terminated_at",
        "run is None or state.terminated_at",
    ),
    one(
        "the machine goes back to an older directive",
        "sidecar/gangsidecar/supervisor/machine/directives.py",
        "        if new.order < old.order or old.verb is Verb.FINISH:",
        "        if old.verb is Verb.FINISH:",
    ),
    Mutant(
        "Ready is said before the whole tree is gone",
        (
            Patch(
                "sidecar/gangsidecar/supervisor/machine/directives.py",
                "    if not state.alive:\n        return settle(state, now_ms)\n    effects",
                "    if not state.mains:\n        return settle(state, now_ms)\n    effects",
            ),
            Patch(
                "sidecar/gangsidecar/supervisor/machine/directives.py",
                "    if state.phase is not Phase.STOPPING or state.alive:",
                "    if state.phase is not Phase.STOPPING:",
            ),
        ),
    ),
    one(
        "the barrier is short by one pod",
        "gangctl/core/lifecycle/gathering.py",
        "    if blocking or missing or ending:\n",
        "    if len(blocking) > 1 or missing or ending:\n",
    ),
    one(
        "the barrier counts members, not pods",
        "gangctl/core/facts/barrier.py",
        "for one in _awaited(gang) if _may_run(gang, one))\n",
        "for one in _awaited(gang) if _may_run(gang, one) and one.incarnation == gang.incarnation(one.member))\n",
    ),
    one(
        "a pod that vanished is taken for gone",
        "gangctl/core/facts/barrier.py",
        " and _is_vanished(gang, p) and _is_grace_over(gang, p.entry)\n",
        " and _is_vanished(gang, p)\n",
    ),
    one(
        "many pods that vanished are taken for gone",
        "gangctl/core/facts/barrier.py",
        "    return _is_grace_over(gang, rest) and not",
        "    return rest.vanished_time is not None and not",
    ),
    one(
        "pods that are waited for are forgotten at the next write",
        "gangctl/core/lifecycle/plan_builder.py",
        "changed(status, message=because)",
        "changed(status, message=because, "
        "awaited=tuple(one for one in status.awaited if one not in gang.status.awaited))",
    ),
    one(
        "the deadline runs without a leader",
        "gangctl/core/policy/deadlines.py",
        "        gang.observed.listening_since + SETTLING_SECONDS",
        "        0.0 * SETTLING_SECONDS",
    ),
    one(
        "Ready for an attempt that runs proves that nothing runs",
        "gangctl/core/facts/gang.py",
        "one.ready_for >= coming or",
        "one.ready_for >= attempt or",
    ),
    one(
        "two pods of one incarnation may speak",
        "gangctl/core/facts/fitness.py",
        "    if gang.unseen and has_twin(gang, member):\n",
        "    if has_twin(gang, member) and member not in gang.pods and not gang.is_fresh(member):\n",
    ),
    one(
        "a fault does not raise the attempt",
        "gangctl/core/lifecycle/transitions.py",
        "(row.attempt is Attempt.NEXT)\n",
        "(row.attempt is Attempt.NEXT and row is not table.RESTART)\n",
    ),
    one(
        "a new session while Running is no fault",
        "gangctl/core/facts/faults.py",
        "    if not has_joined(report, status.attempt):\n",
        "    if report.attempt > status.attempt:\n",
    ),
    Mutant(
        "a pod is deleted before its incarnation is raised",
        (
            Patch(
                "gangctl/core/policy/replacement.py",
                "            incarnation=gang.incarnation(name) + 1,\n",
                '            incarnation=gang.incarnation(name) + (why.reason != "DeviceLost"),\n',
            ),
            Patch(
                "gangctl/core/policy/pods.py",
                "(gang.observed.pods if len(present) < len(gang.observed.pods) else ())",
                "gang.observed.pods",
            ),
            Patch(
                "gangctl/core/policy/pods.py",
                "pod.incarnation < current.get(pod.member, base))\n",
                "pod.incarnation < current.get(pod.member, base) "
                'or any(one.health == "Unhealthy" for one in pod.devices))\n',
            ),
        ),
    ),
    one(
        "a rank is given to two members",
        "gangctl/core/facts/ranks.py",
        "next(free.setdefault(role, _of_role(gang, spares, role)), None)",
        "next(_of_role(gang, spares, role), None)",
    ),
    one(
        "the Ready of a spare for an older attempt counts for a place",
        "gangctl/core/facts/fitness.py",
        "            if heard.ready_for == attempt\n",
        "            if (heard.ready_for == attempt or (gang.members[member].is_spare and heard.ready_for >= 0))\n",
    ),
    one(
        "more members are replaced than a status can name",
        "gangctl/core/policy/replacement.py",
        "    return not more or len(known) + len(more) <= MAX_REPLACED\n",
        "    return True\n",
    ),
    one(
        "spares take more places than a status can name",
        "gangctl/core/facts/ranks.py",
        "            may_take = room > 0 or place != holder\n",
        "            may_take = True\n",
    ),
    one(
        "a member of whom a worker has failed is passed over",
        "gangctl/core/facts/world.py",
        "        quiet = goes_on and not asks and all(end.stopped for end in one.ends)\n",
        "        quiet = goes_on and not asks\n",
    ),
)
