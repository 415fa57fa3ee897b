"""Mutants of what a restart goes by: the budget, causes, ends, restore points, the wait before it."""

from __future__ import annotations

from tests.simulation.mutant import Mutant, Patch, one

MUTANTS = (
    one(
        "the budget is charged twice",
        "gangctl/core/record/incidents.py",
        "    return entered(gang, loss.noted(status, seconds), entry, in_a_row) if restarted else status\n",
        "    twice = entered(gang, status, entry, in_a_row)\n"
        "    return entered(gang, twice, entry, in_a_row) if restarted else status\n",
    ),
    one(
        "the budget is never used up",
        "gangctl/core/policy/budget.py",
        "charged(spec, status, now) < budget.max_restarts\n",
        "charged(spec, status, now) <= budget.max_restarts\n",
    ),
    one(
        "a checkpoint that was left is no progress",
        "gangctl/core/record/incidents.py",
        "    return True if before is None or point.step > before.step else None\n",
        "    return None\n",
    ),
    one(
        "a gang that has saved a step goes back behind it",
        "gangctl/core/policy/older_step.py",
        "point is None or newest.step > point.step",
        "point is None",
    ),
    one(
        "a gang that reports no steps goes back again and again",
        "gangctl/core/policy/older_step.py",
        "            return 0\n        counted",
        "            break\n        counted",
    ),
    one(
        "an echo ends the job",
        "gangctl/core/policy/cause.py",
        "    if len(cause.tied) <= 1:\n        return",
        "    for one in faults(gang):\n"
        "        if verdict(gang.spec, one).action is Action.FAIL_JOB:\n"
        "            return judged(gang.spec, one)\n"
        "    if len(cause.tied) <= 1:\n        return",
    ),
    one(
        "exit 0 after a stop is taken for success",
        "gangctl/core/facts/finished.py",
        "end.exit_code == 0 and not end.stopped:",
        "end.exit_code == 0:",
    ),
    one(
        "an exit 0 of another attempt counts",
        "gangctl/core/facts/finished.py",
        "if end.attempt == attempt and end.exit_code",
        "if end.attempt <= attempt and end.exit_code",
    ),
    one(
        "who finished another attempt is taken for finished",
        "gangctl/core/record/finishes.py",
        "        return status if status.finished is None else changed(status, finished=None)\n",
        "        new = record(gang)\n"
        "        return changed(status, finished=new and new.model_copy(update={'attempt': attempt}))\n",
    ),
    one(
        "a member of which one process has finished has finished",
        "gangctl/core/facts/finished.py",
        "if member in done and len(done[member]) == processes_of(gang.places[place].role)",
        "if member in done",
    ),
    one(
        "what was finished before the gang was resumed counts",
        "gangctl/core/facts/finished.py",
        "    return newest if newest >= status.resumed_attempt else 0\n",
        "    return newest\n",
    ),
    one(
        "last words are not read",
        "gangctl/core/facts/finished.py",
        "        if pod.last_words is not None:\n",
        "        if pod.last_words is not None and pod.restarts:\n",
    ),
    one(
        "the order of last words is believed",
        "gangctl/core/facts/ends.py",
        "pod.last_words.at - end.age_ms / 1000, exact=False)",
        "pod.last_words.at - end.age_ms / 1000)",
    ),
    one(
        "the status does not record who has finished",
        "gangctl/core/facts/finished.py",
        "    return recorded_places(gang.status, attempt) | shown\n",
        "    return frozenset(shown)\n",
    ),
    one(
        "the end of a finished member's pod is a fault",
        "gangctl/core/facts/faults.py",
        "(_of_finished if place in done else _of_member)",
        "_of_member",
    ),
    one(
        "an end is left again",
        "gangctl/core/lifecycle/table.py",
        "GangPhase.RUNNING, GangPhase.HELD)\n",
        "GangPhase.RUNNING, GangPhase.HELD, GangPhase.FAILED)\n",
    ),
    one(
        "the restore point is one that any rank can load",
        "gangctl/core/policy/checkpoints.py",
        "            having = {step: max(attempt, found[step]) for step, attempt in having.items() if step in found}\n",
        "            having = {**found, **having}\n",
    ),
    one(
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
    one(
        "time that a clock repeats is accounted for again",
        "gangctl/core/record/goodput.py",
        "max(gang.now, before.accounted_time), _fault",
        "gang.now, _fault",
    ),
    one(
        "a loss of progress is counted twice",
        "gangctl/core/record/loss.py",
        "status.spent.lost_progress + lost, 3)",
        "status.spent.lost_progress + lost + lost, 3)",
        told=True,
    ),
    one(
        "a container that was started before and is not now is taken for one that never ran",
        "gangctl/core/facts/barrier.py",
        " or pod.restarts > 0",
        "",
    ),
    one(
        "a member that only falls silent gives its place to a spare",
        "gangctl/core/facts/ranks.py",
        "or gang.is_fresh(holder):\n",
        "or gang.is_fresh(holder) or not gang.connected(holder):\n",
    ),
    one(
        "among equal faults the latest becomes the cause",
        "gangctl/core/policy/cause.py",
        " and new.time < old.time <= gang.now\n",
        " and new.time > old.time <= gang.now\n",
    ),
    one(
        "restarts in a row do not wait",
        "gangctl/core/lifecycle/gathering.py",
        "        more = more or _back_off(gang, refreshed, settlement, complete)\n",
        "",
    ),
    one(
        "a gang that reports no steps waits before its checkpoints are listed",
        "gangctl/core/lifecycle/gathering.py",
        "if until is None or not (is_known or not restore.may_have_saved(gang, assignment)):\n",
        "if until is None:\n",
    ),
    one(
        "a gang waits though it has saved a step",
        "gangctl/core/policy/restore.py",
        "    return bool(found) and (before is None or found[0].point.step > before.step)\n",
        "    return False\n",
    ),
    one(
        "the first restart waits",
        "gangctl/core/policy/restart_backoff.py",
        "    if restarts <= 1:\n",
        "    if restarts < 1:\n",
    ),
    one(
        "a step does not end a row of restarts",
        "gangctl/core/policy/restart_backoff.py",
        "0 if progressed or _made_step(gang) else gang",
        "gang",
    ),
    one(
        "disruptions wait as failures do",
        "gangctl/core/policy/restart_backoff.py",
        "    return default_action(cause.reason) is not Action.IGNORE\n",
        "    return cause.reason != Reason.RESTART_REQUESTED\n",
    ),
    one(
        "an overlapping tie counts as the same tie",
        "gangctl/core/policy/cause.py",
        "set(before.cause.tied) == members\n",
        "bool(set(before.cause.tied) & members)\n",
    ),
    one(
        "only the tied ends that a status names are looked at",
        "gangctl/core/policy/cause.py",
        "    ties = tied_to(cause, found)\n    members",
        "    ties = tied_to(cause, found)[: NAMED - 1]\n    members",
    ),
    one(
        "a member is blamed though all ended alike",
        "gangctl/core/policy/ladder.py",
        "    if suspected and not cause.alike:\n",
        "    if suspected:\n",
    ),
)
