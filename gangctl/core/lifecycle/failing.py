"""Failing actions: what is told of one that fails again and again. Nothing else is decided about it: it is repeated.

The rule: it is told once for each row of failures, so that a user sees what a gang waits for. A pod that something
deletes as often as it is created is such a failure.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import sentence
from gangctl.api.names import pod_name
from gangctl.api.reasons import Reason
from gangctl.core.lifecycle.plan import DeleteGang, Event, EventType
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.core.policy.queueing import TellQueue

TOLD_AFTER: Final = 3
"""Failures in a row: a few seconds. What is over by then is not told."""


def undone(job: GangJob, create: CreatePod, times: int) -> Event | None:
    """The Event about a pod that is created again and again; None if there is none. ``times``: in a row."""
    if times != TOLD_AFTER:
        return None
    pod = pod_name(job.metadata.name, create.member, create.incarnation)
    what = f"pod {pod} was created {times} times, and something deletes it before it runs; it is created again, "
    todo = "less and less often: find out what deletes pods here (a descheduler, a policy for pending pods)"
    return Event(EventType.WARNING, Reason.ACTION_FAILS, sentence(f"{what}{todo}"), create.member, pod)


def failing(
    job: GangJob, action: CreatePod | DeletePod | DeleteGang | TellQueue, failures: int, why: str
) -> Event | None:
    """The Event; None if there is none. ``failures``: in a row, this one included; ``why``: a sentence."""
    if failures != TOLD_AFTER:
        return None
    member = pod = ""
    match action:
        case CreatePod():
            member, pod = action.member, pod_name(job.metadata.name, action.member, action.incarnation)
            what = f"pod {pod} can't be created"
        case DeletePod():
            pod, what = action.name, f"pod {action.name} can't be deleted"
        case DeleteGang():
            what = "the gang can't be deleted"
        case TellQueue():
            what = f"the gang's Workload in its queue can't be changed ({action.verb})"
    return Event(EventType.WARNING, Reason.ACTION_FAILS, sentence(f"{what}, and it is tried again: {why}"), member, pod)
