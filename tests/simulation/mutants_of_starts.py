"""Mutants of starts and containers: mistakes that take a user's container, or one pod's trouble, for the worker's."""

from __future__ import annotations

from tests.simulation.mutant import one

CONTAINERS = "gangctl/cluster/kube/watch/containers.py"
FAILED_STARTS = "gangctl/core/policy/failed_starts.py"

MUTANTS = (
    one(
        "a user's init container that was retried counts as a silent restart",
        CONTAINERS,
        "    own = [one for one in raw.status.init_container_statuses if one.name in _OWN]\n",
        "    own = [*raw.status.init_container_statuses]\n",
    ),
    one(
        "the end of a container beside the worker is the worker's",
        CONTAINERS,
        "    return statuses if name is None else tuple(one for one in statuses if one.name == name)\n",
        "    return statuses\n",
    ),
    one(
        "a gang ends for a pod though another of the role works",
        FAILED_STARTS,
        "    failing = [name for name in failing if gang.members[name].role.name not in working]\n",
        "    failing = [name for name in failing if name not in working]\n",
    ),
    one(
        "a gang ends at the first start that fails",
        FAILED_STARTS,
        "(0 if entry is None else entry.failures + 1) >= TRIES\n",
        "(0 if entry is None else entry.failures + 1) >= 1\n",
    ),
    one(
        "a command that is away for a while ends the gang",
        FAILED_STARTS,
        "    row = [cause, *(one.cause for one in gang.status.incidents[1:tries])]\n"
        "    return len(row) == tries >= TRIES and",
        "    row = [cause, *(one.cause for one in gang.status.incidents[1:TRIES])]\n    return len(row) == TRIES and",
    ),
)
