"""Mutants of what nodes show: mistakes that take history for news, or a hint for a fault."""

from __future__ import annotations

from tests.simulation.mutant import one

NODES = "gangctl/core/facts/nodes.py"

MUTANTS = (
    one(
        "what a node shows counts whenever it came",
        NODES,
        "    return next((one for one in now if one.since > max(_came(pod), _began(gang))), None)\n",
        "    return next(now, None)\n",
    ),
    one(
        "what a node showed before the attempt counts",
        NODES,
        "one.since > max(_came(pod), _began(gang))",
        "one.since > _came(pod)",
    ),
    one(
        "a taint that a new controller finds is new",
        "gangctl/cluster/sightings.py",
        "    return 0.0 if written is None or written > now else written\n",
        "    return now if written is None or written > now else written\n",
    ),
    one(
        "a node that is to be left some day is left at once",
        NODES,
        "one.answer in {NodeAnswer.LEAVE, NodeAnswer.DRAIN})",
        "one.answer is not NodeAnswer.NOTE)",
    ),
    one(
        "a cordon alone is a drain",
        NODES,
        "if pod.node in cordoned and _is_evicted(pod))",
        "if pod.node in cordoned)",
    ),
    one(
        "what a node shows is not looked at",
        "gangctl/core/facts/gang.py",
        "            and (not nodes or pod.node not in nodes)\n",
        "",
    ),
)
