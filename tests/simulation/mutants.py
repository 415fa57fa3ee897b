"""Mutants: deliberate mistakes, as small patches of the source. The tests must catch each of them."""

from __future__ import annotations

from tests.simulation import mutants_of_silence
from tests.simulation.mutant import Mutant, Patch
from tests.simulation.mutant import one as _one

MUTANTS = (
    _one(
        "members are told before the status is stored",
        "tests/simulation/controller.py",
        "        u.leaders[number] = replace(thought, plan=plan)\n",
        "        u.leaders[number] = replace(thought, plan=plan, status=plan.status)\n        tell_all(u, number)\n",
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
    _one(
        "the machine takes a Run for another session",
        "sidecar/gangsidecar/supervisor/machine/directives.py",
        "run is None or run.session != state.session or state.terminated_at",
        "run is None or state.terminated_at",
    ),
    _one(
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
                "    if state.phase is not Phase.STOPPING or state.alive or hold is None",
                "    if state.phase is not Phase.STOPPING or hold is None",
            ),
        ),
    ),
    _one(
        "the barrier is short by one pod",
        "gangctl/core/lifecycle/gathering.py",
        "    if blocking or missing or ending:\n",
        "    if len(blocking) > 1 or missing or ending:\n",
    ),
    _one(
        "the barrier counts members, not pods",
        "gangctl/core/facts/barrier.py",
        "in (*unnamed, *_awaited(gang)) if",
        "in (*unnamed, *(one for one in _awaited(gang) if one.incarnation == gang.incarnation(one.member))) if",
    ),
    _one(
        "a pod that vanished is taken for gone",
        "gangctl/core/facts/barrier.py",
        " and _is_vanished(gang, p) and _is_grace_over(gang, p.entry)\n",
        " and _is_vanished(gang, p)\n",
    ),
    _one(
        "many pods that vanished are taken for gone",
        "gangctl/core/facts/barrier.py",
        "    return _is_grace_over(gang, rest) and not",
        "    return rest.vanished_time is not None and not",
    ),
    _one(
        "pods that are waited for are forgotten at the next write",
        "gangctl/core/lifecycle/plan_builder.py",
        "changed(status, message=because)",
        "changed(status, message=because, "
        "awaited=tuple(one for one in status.awaited if one not in gang.status.awaited))",
    ),
    _one(
        "the deadline runs without a leader",
        "gangctl/core/policy/deadlines.py",
        "        gang.observed.listening_since + SETTLING_SECONDS",
        "        0.0 * SETTLING_SECONDS",
    ),
    _one(
        "Ready for an attempt that runs proves that nothing runs",
        "gangctl/core/facts/gang.py",
        "    return report.phase is Phase.READY and report.attempt >= coming_attempt(status)\n",
        "    return report.phase is Phase.READY and report.attempt >= status.attempt\n",
    ),
    _one(
        "two pods of one incarnation may speak",
        "gangctl/core/facts/fitness.py",
        "    if has_twin(gang, member):\n",
        "    if has_twin(gang, member) and member not in gang.pods and not gang.is_fresh(member):\n",
    ),
    _one(
        "a fault does not raise the attempt",
        "gangctl/core/lifecycle/transitions.py",
        "(row.attempt is Attempt.NEXT)\n",
        "(row.attempt is Attempt.NEXT and row is not table.RESTART)\n",
    ),
    _one(
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
                "            incarnation=gang.incarnation(name) + (why.reason is not Reason.DEVICE_LOST),\n",
            ),
            Patch(
                "gangctl/core/policy/pods.py",
                "pod.incarnation < current.get(pod.member, base))\n",
                "pod.incarnation < current.get(pod.member, base) "
                'or any(one.health == "Unhealthy" for one in pod.devices))\n',
            ),
        ),
    ),
    _one(
        "a rank is given to two members",
        "gangctl/core/facts/ranks.py",
        "next(free.setdefault(role, _ready_spares(gang, role)), None)",
        "next(_ready_spares(gang, role), None)",
    ),
    _one(
        "the Ready of a spare for an older attempt counts for a place",
        "gangctl/core/facts/fitness.py",
        "        and heard.report.attempt == gang.status.attempt\n",
        "        and (heard.report.attempt == gang.status.attempt or gang.members[member].is_spare)\n",
    ),
    _one(
        "more members are replaced than a status can name",
        "gangctl/core/policy/replacement.py",
        "    return not more or len(known) + len(more) <= MAX_REPLACED\n",
        "    return True\n",
    ),
    _one(
        "spares take more places than a status can name",
        "gangctl/core/facts/ranks.py",
        "            may_take = room > 0 or place != holder\n",
        "            may_take = True\n",
    ),
    _one(
        "a member of whom a worker has failed is passed over",
        "gangctl/core/facts/world.py",
        "        quiet = goes_on and not asks and all(end.stopped for end in one.ends)\n",
        "        quiet = goes_on and not asks\n",
    ),
    _one(
        "the budget is charged twice",
        "gangctl/core/record/incidents.py",
        "    return entered(gang, loss.noted(status, seconds), entry, in_a_row) if restarted else status\n",
        "    twice = entered(gang, status, entry, in_a_row)\n"
        "    return entered(gang, twice, entry, in_a_row) if restarted else status\n",
    ),
    _one(
        "the budget is never used up",
        "gangctl/core/policy/budget.py",
        "charged(spec, status, now) < budget.max_restarts\n",
        "charged(spec, status, now) <= budget.max_restarts\n",
    ),
    _one(
        "an echo ends the job",
        "gangctl/core/policy/cause.py",
        "    if len(cause.tied) <= 1:\n        return",
        "    for one in faults(gang):\n"
        "        if verdict(gang.spec, one).action is Action.FAIL_JOB:\n"
        "            return judged(gang.spec, one)\n"
        "    if len(cause.tied) <= 1:\n        return",
    ),
    _one(
        "exit 0 after a stop is taken for success",
        "gangctl/core/facts/finished.py",
        "end.exit_code == 0 and not end.stopped:",
        "end.exit_code == 0:",
    ),
    _one(
        "exit 0 after SIGTERM is natural",
        "sidecar/gangsidecar/supervisor/machine/worker.py",
        "stopped=state.stop is not None or state.terminated_at is not None,",
        "stopped=state.stop is not None,",
    ),
    _one(
        "an exit 0 of another attempt counts",
        "gangctl/core/facts/finished.py",
        "if end.attempt == attempt and end.exit_code",
        "if end.attempt <= attempt and end.exit_code",
    ),
    _one(
        "who finished another attempt is taken for finished",
        "gangctl/core/record/finishes.py",
        "        return status if status.finished is None else changed(status, finished=None)\n",
        "        new = record(gang)\n"
        "        return changed(status, finished=new and new.model_copy(update={'attempt': attempt}))\n",
    ),
    _one(
        "a member of which one process has finished has finished",
        "gangctl/core/facts/finished.py",
        "if member in done and len(done[member]) == processes_of(gang.places[place].role)",
        "if member in done",
    ),
    _one(
        "what was finished before the gang was resumed counts",
        "gangctl/core/facts/finished.py",
        "    return newest if newest >= status.resumed_attempt else 0\n",
        "    return newest\n",
    ),
    _one(
        "last words are not read",
        "gangctl/core/facts/finished.py",
        "        if pod.last_words is not None:\n",
        "        if pod.last_words is not None and pod.restarts:\n",
    ),
    _one(
        "the status does not record who has finished",
        "gangctl/core/facts/finished.py",
        "    return recorded_places(gang.status, attempt) | shown\n",
        "    return frozenset(shown)\n",
    ),
    _one(
        "the end of a finished member's pod is a fault",
        "gangctl/core/facts/faults.py",
        "(_of_finished if place in done else _of_member)",
        "_of_member",
    ),
    _one(
        "a finished member gets a new pod while the others run",
        "gangctl/core/policy/pods.py",
        "            and name not in done\n",
        "",
    ),
    _one(
        "an end is left again",
        "gangctl/core/lifecycle/table.py",
        "GangPhase.RUNNING, GangPhase.HELD)\n",
        "GangPhase.RUNNING, GangPhase.HELD, GangPhase.FAILED)\n",
    ),
    _one(
        "the restore point is one that any rank can load",
        "gangctl/core/policy/checkpoints.py",
        "sorted(set.intersection(*held)) if held else []\n",
        "sorted(set.union(*held)) if held else []\n",
    ),
    _one(
        "a rejected step is used",
        "gangctl/core/policy/restore.py",
        "        if (tier.name, candidate.point.step, candidate.marker) not in out\n",
        "        if (tier.name, candidate.point.step, candidate.marker, 0) not in out\n",
    ),
    Mutant(
        "the directory is scanned before every pod has stopped",
        (
            Patch(
                "gangctl/core/lifecycle/gathering.py",
                "from gangctl.core.lifecycle.plan import Event, EventType, Plan\n",
                "from gangctl.core.lifecycle.plan import AskScan, Event, EventType, Plan\n"
                "from gangctl.core.policy import restore\n",
            ),
            Patch(
                "gangctl/core/lifecycle/gathering.py",
                "pods.actions(gang, gang.status, create=ending is None))\n",
                "(*pods.actions(gang, gang.status, create=ending is None), *_early(gang)))\n",
            ),
            Patch(
                "gangctl/core/lifecycle/gathering.py",
                "def _replace(",
                "def _early(gang: Gang) -> tuple[AskScan, ...]:\n"
                "    scan = restore.wanted_scan(gang)\n"
                "    return tuple(AskScan(pod.uid, scan) for pod in [*gang.pods.values()][:1] if scan)\n\n\n"
                "def _replace(",
            ),
        ),
    ),
    _one(
        "time that a clock repeats is accounted for again",
        "gangctl/core/record/goodput.py",
        "max(gang.now, before.accounted_time), _fault",
        "gang.now, _fault",
    ),
    _one(
        "a loss of progress is counted twice",
        "gangctl/core/record/loss.py",
        "status.spent.lost_progress + lost, 3)",
        "status.spent.lost_progress + lost + lost, 3)",
    ),
    _one(
        "a container that was started before and is not now is taken for one that never ran",
        "gangctl/core/facts/barrier.py",
        " or p.shown.restarts > 0",
        "",
    ),
    _one(
        "a member that only falls silent gives its place to a spare",
        "gangctl/core/facts/ranks.py",
        "not gang.is_fresh(holder):\n",
        "not gang.is_fresh(holder) and gang.connected(holder):\n",
    ),
    _one(
        "among equal faults the latest becomes the cause",
        "gangctl/core/policy/cause.py",
        " and new.time < old.time\n",
        " and new.time > old.time\n",
    ),
    _one(
        "restarts in a row do not wait",
        "gangctl/core/lifecycle/gathering.py",
        "_level(gang, settlement) or _back_off(gang, refreshed, settlement)\n",
        "_level(gang, settlement)\n",
    ),
    _one(
        "the first restart waits",
        "gangctl/core/policy/restart_backoff.py",
        "    if restarts <= 1:\n",
        "    if restarts < 1:\n",
    ),
    _one(
        "a step does not end a row of restarts",
        "gangctl/core/policy/restart_backoff.py",
        "0 if _made_step(gang) else gang",
        "gang",
    ),
    _one(
        "disruptions wait as failures do",
        "gangctl/core/policy/restart_backoff.py",
        "    return default_action(cause.reason) is not Action.IGNORE\n",
        "    return cause.reason != Reason.RESTART_REQUESTED\n",
    ),
    _one(
        "an overlapping tie counts as the same tie",
        "gangctl/core/policy/cause.py",
        "set(before.cause.tied) == members\n",
        "bool(set(before.cause.tied) & members)\n",
    ),
    _one(
        "only the tied ends that a status names are looked at",
        "gangctl/core/policy/cause.py",
        "    ties = tied_to(cause, found)\n    members",
        "    ties = tied_to(cause, found)[: NAMED - 1]\n    members",
    ),
    _one(
        "a member is blamed though all ended alike",
        "gangctl/core/policy/ladder.py",
        "    if suspected and not cause.alike:\n",
        "    if suspected:\n",
    ),
    *mutants_of_silence.MUTANTS,
)
