"""Mutants of planned restarts in a group: too many replicas away at once, and gangs that all wait."""

from __future__ import annotations

from tests.simulation.mutant import one

GROUP = "gangctl/core/facts/group.py"
GROUPS = "gangctl/controller/groups.py"
ROLLING = "gangctl/core/policy/rolling.py"
RUNNING = "gangctl/core/lifecycle/running.py"

MUTANTS = (
    one(
        "a planned restart does not wait for its group",
        RUNNING,
        "    if requests.is_new(gang.spec, gang.status) and not rolling.waits_for(gang):\n",
        "    if requests.is_new(gang.spec, gang.status):\n",
    ),
    one(
        "one gang more than maxUnavailable may be unavailable",
        ROLLING,
        "    return away if len(away) >= rolling.max_unavailable else ()\n",
        "    return away if len(away) > rolling.max_unavailable else ()\n",
    ),
    one(
        "a gang counts as available while its pods show how ready they were before",
        ROLLING,
        "if one.available_at is None or gang.now < one.available_at)\n",
        "if one.available_at is None)\n",
    ),
    one(
        "a gang counts as available as soon as it runs",
        GROUP,
        "    if not all(pod is not None and _is_ready(pod) for pod in needed):\n",
        "    if not all(pod is not None for pod in needed):\n",
    ),
    one(
        "a gang whose restart is decided counts as available until that is stored",
        GROUPS,
        "        self._leaving.add(uid)\n",
        "        self._leaving.discard(uid)\n",
    ),
    one(
        "gangs that do not serve wait for each other",
        ROLLING,
        "not asks(gang.job) or group.available_at(gang) is None:\n",
        "not asks(gang.job):\n",
    ),
)
