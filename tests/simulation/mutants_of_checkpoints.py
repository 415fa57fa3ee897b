"""Mutants of what is restored: lineage, records, requests."""

from __future__ import annotations

from tests.simulation.mutant import one

MUTANTS = (
    one(
        "of many rejected steps the newest are forgotten",
        "gangctl/core/policy/restore.py",
        "sorted(steps[-count:])",
        "sorted(steps[:count])",
    ),
    one(
        "a token that comes back starts from the beginning again",
        "gangctl/core/policy/requests.py",
        "if _names_this(spec) and token not in known:",
        "if _names_this(spec):",
    ),
    one(
        "a shared step needs only one process group",
        "gangctl/core/policy/checkpoints.py",
        "    for place, own in numbered(gang.spec).ranks.items():\n        heard",
        "    for place in next(iter(numbered(gang.spec).groups.values())):\n"
        "        own = numbered(gang.spec).ranks[place]\n        heard",
    ),
    one(
        "what a restart has undone exists",
        "gangctl/core/facts/lineage.py",
        "if entry.attempt > attempt), default=math.inf)",
        "if entry.attempt > attempt + 9), default=math.inf)",
    ),
    one(
        "a lineage that is too long forgets its oldest restart",
        "gangctl/core/facts/lineage.py",
        "[LineageEntry(attempt=second.attempt, step=first.step)]",
        "[second]",
    ),
    one(
        "a step that a rank has dropped stays on record",
        "gangctl/core/policy/checkpoints.py",
        "        and entry.attempt > dropped.get(entry.step, -1)\n",
        "",
    ),
    one(
        "what a replaced pod has saved counts without end",
        "gangctl/core/policy/checkpoints.py",
        "(one, None if one.report.incarnation == current else before)",
        "(one, None)",
    ),
    one(
        "memory of an earlier boot is believed",
        "gangctl/core/policy/checkpoints.py",
        'not (one.earlier_boot and tier.scope != "Shared") and ',
        "",
    ),
    one(
        "a copy counts with a member that will not run",
        "gangctl/core/policy/checkpoints.py",
        "        for place in places:\n            heard = sources.alone.get(place)\n",
        "        for heard in gang.heard.values():\n",
    ),
    one(
        "a rank of one process group loads the copy of another's",
        "gangctl/core/policy/checkpoints.py",
        "    for places in numbering.groups.values():\n        held: dict[int, tuple[Part, ...]] = {}\n",
        "    held: dict[int, tuple[Part, ...]] = {}\n    for places in numbering.groups.values():\n",
    ),
    one(
        "a copy at a peer does not count",
        "gangctl/core/policy/checkpoints.py",
        'if tier.scope == "Peers" else _kinds(gang, tier, sources)',
        'if tier.scope == "peers" else _kinds(gang, tier, sources)',
    ),
    one(
        "a step is rejected while its directory can't be seen",
        "gangctl/core/facts/faults.py",
        "    return sum(not one.missing_folder for one in unseen_by(gang)) * 2 > len(gang.places)\n",
        "    return len(unseen_by(gang)) * 2 > len(gang.places)\n",
    ),
    one(
        "the first checkpoint of one rank alone is a record",
        "gangctl/core/policy/restore.py",
        "    return Undecided.NONE_FOUND if recorded(gang)",
        "    registered = any(one.report.checkpoints for one in gang.observed.heard)\n"
        "    return Undecided.NONE_FOUND if registered or recorded(gang)",
    ),
    one(
        "a gang that has made steps begins again where its directory shows none",
        "gangctl/core/policy/restore.py",
        "    return max(made, default=0) or None\n",
        "    return None if made else None\n",
    ),
    one(
        "a step that was lost is no record",
        "gangctl/core/policy/restore.py",
        "if recorded(gang) is not None or steps_made",
        "if steps_made",
    ),
    one(
        "the restore point that a user asked for counts again",
        "gangctl/core/lifecycle/transitions.py",
        "        restart_from=None,\n",
        "        restart_from=status.restart_from,\n",
    ),
    one(
        "a start from the beginning that a user asked for leaves the steps of before",
        "gangctl/core/policy/restore.py",
        "    return rejections(gang, assignment, 0 if asked is None else asked + 1, kept)\n",
        "    return kept\n",
    ),
    one(
        "the beginning that a user asks for is refused while a step is on record",
        "gangctl/core/policy/restore.py",
        "    return Undecided.TOO_MANY if hides_steps(gang) else None\n",
        "    return Undecided.NONE_FOUND if recorded(gang) is not None else None\n",
    ),
)
