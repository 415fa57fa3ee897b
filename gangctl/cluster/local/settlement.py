"""Stores what a controller would decide of a gang whose processes have been ended without one.

The status is the controller's. So this decides as it does, as the only controller, once the pods have terminated: a
gang that is to be suspended is Suspended then, and nothing is said of it that is not so.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.controller_lock import only_controller
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.decide import decide

MOST_DECISIONS: Final = 4
"""More than any gang whose pods have terminated needs until it waits."""


def settle(state: StateDirectory, store: GangStore, now: float) -> GangJob:
    """Store the status of a gang that is to be suspended; ``now`` in seconds since the epoch.

    Raises:
        Terminal: a controller runs, or the gang can't be read.
        Retryable: the status can't be stored.
        Conflict: the gang is changed meanwhile.
    """
    with only_controller(state):
        job = store.read()
        pods = [pod_record.projection(one) for one in pod_record.load_all(store.folder) if one.gang == job.metadata.uid]
        for _ in range(MOST_DECISIONS):
            status = decide(now, job, Observed(pods=tuple(pods))).status
            if status is None:
                break
            job = store.write_status(job, status)
        return job
