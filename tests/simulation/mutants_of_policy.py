"""Mutants of what is done about a fault: causes, deadlines, success, replacement, directives."""

from __future__ import annotations

from tests.simulation.mutant import one

BARRIER = "gangctl/core/facts/barrier.py"
CAUSE = "gangctl/core/policy/cause.py"
FINISHED = "gangctl/core/facts/finished.py"
DIRECTIVE = "gangctl/core/lifecycle/directive.py"
ENDS = "gangctl/core/facts/ends.py"
RULES = "gangctl/core/policy/rules.py"

MUTANTS = (
    one(
        "the barrier ignores a spare that holds a rank",
        BARRIER,
        "    return gang.holding.difference(name for name in gang.replaced if gang.is_fresh(name))\n",
        "    return gang.holding.difference(\n"
        "        (name for name, one in gang.members.items() if one.is_spare),\n"
        "        (name for name in gang.replaced if gang.is_fresh(name)),\n"
        "    )\n",
    ),
    one(
        "an unseen pod that is stopping does not block",
        BARRIER,
        "gang.absent.items() if uid not in known]",
        'gang.absent.items() if uid not in known and one.report.phase.name != "STOPPING"]',
    ),
    one(
        "a pod that is being deleted counts as terminated",
        BARRIER,
        "p.shown is not None and p.shown.terminated and _is_silent(p)\n",
        "p.shown is not None and (p.shown.terminated or p.shown.deleting)\n",
    ),
    one(
        "a pod that is being deleted counts as vanished",
        BARRIER,
        "p.shown is None or (p.shown.deleting and on_lost_node(gang, p.shown))",
        "p.shown is None or p.shown.deleting",
    ),
    one(
        "a vanished pod that still speaks counts as lost",
        BARRIER,
        "    if not _is_silent(p):\n        return False\n    if _is_fenced",
        "    if _is_fenced",
    ),
    one(
        "a pod that has just vanished counts as long gone",
        BARRIER,
        "vanished_time=gang.now)",
        "vanished_time=gang.now - 3600)",
    ),
    one(
        "fencing goes by the last word of a member, and not by when this leader began to listen",
        BARRIER,
        "    silent_since = max(gang.observed.listening_since, (missed or 0.0) if p.heard is None else p.heard.at)\n",
        "    silent_since = gang.status.phase_time if p.heard is None else p.heard.at\n",
    ),
    one(
        "a pod that was replaced is directed as if it were current",
        DIRECTIVE,
        "        if current is None or report.incarnation < current:\n",
        "        if current is None:\n",
    ),
    one(
        "a status is written over a newer one",
        "tests/simulation/controller.py",
        "    if leader.version != u.version or outcome is Write.CONFLICT:\n",
        "    if outcome is Write.CONFLICT:\n",
    ),
    one(
        "a line of the log matches the rules for other patterns too",
        RULES,
        "for one in fault.lines if one.pattern == rule.on_log.pattern)",
        "for one in fault.lines if one.pattern)",
    ),
    one(
        "a line of an older attempt judges an end",
        ENDS,
        "for one in heard.report.log_matches if one.attempt == attempt)",
        "for one in heard.report.log_matches if one.attempt <= attempt)",
    ),
    one(
        "one matching end of several tied ones ends the job",
        CAUSE,
        "    if not failing or not (again or {one.member for one in failing} == members):\n",
        "    if not failing:\n",
    ),
    one(
        "more tied ends are named than a status has room for",
        CAUSE,
        "tied=tuple(sorted(ties))[:NAMED])",
        "tied=tuple(sorted({one.member for one in found} | ties)))",
    ),
    one(
        "a fault becomes the cause of a restart that was asked for",
        CAUSE,
        "    if old.reason == Reason.RESTART_REQUESTED:\n        return False",
        "    if old.reason == Reason.RESTART_REQUESTED and not new.member:\n        return False",
    ),
    one(
        "a disruption is charged to the budget",
        CAUSE,
        "    charged = _action(cause) is not Action.IGNORE\n",
        "    charged = _action(cause) is not Action.IGNORE or cause.rule is None\n",
    ),
    one(
        "a record of an older attempt says who has finished",
        FINISHED,
        "record is None or record.attempt != attempt else _places",
        "record is None or attempt < 1 else _places",
    ),
    one(
        "roles that the policy does not count are needed for success",
        "gangctl/core/policy/success.py",
        "        if not isinstance(policy, Roles) or member.role.name in policy.roles\n",
        "        if not isinstance(policy, Roles) or member.role.name\n",
    ),
    one(
        "a pod is created while one of an older incarnation is not told to end",
        "gangctl/core/policy/pods.py",
        "        and (pod.member not in gang.members or pod.incarnation < current.get(pod.member, base))\n",
        "        and pod.member not in gang.members\n",
    ),
    one(
        "a slow rank moves again and again",
        "gangctl/core/policy/degradation.py",
        "for one in slowness.slow(gang) if one.rank not in before)",
        "for one in slowness.slow(gang))",
    ),
    one(
        "the ranks have no time to save before a slow one moves",
        "gangctl/core/facts/faults.py",
        "fault.strength is Strength.DISRUPTION or fault.reason is Reason.DEVICE_DEGRADED",
        "fault.strength is Strength.DISRUPTION",
    ),
)
