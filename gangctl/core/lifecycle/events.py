"""Events about what isn't a decision of a gang: failing actions and unreadable gangs.

Failing actions: what is told of one that fails again and again. Nothing else is decided about it: it is repeated.

The rule: it is told once for each row of failures, so that a user sees what a gang waits for. A pod that something
deletes as often as it is created is such a failure.

Unreadable: what is told of a gang that this release can't read. Nothing else is decided about it.
"""

from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import pod_name
from gangctl.api.reasons import Reason
from gangctl.core.lifecycle.plan import DeleteGang, Event
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.words import decisions

# Failing actions


TOLD_AFTER: Final = 3
"""Failures in a row: a few seconds. What is over by then is not told."""


def undone_event(job: GangJob, create: CreatePod, times: int) -> Event | None:
    """The Event about a pod that is created again and again; None if there is none. ``times``: in a row."""
    if times != TOLD_AFTER:
        return None
    pod = pod_name(job.metadata.name, create.member, create.incarnation)
    message = decisions.pod_deleted_again(pod, times)
    return Event(Reason.ACTION_FAILS, message, create.member, pod)


def failure_event(
    job: GangJob, action: CreatePod | DeletePod | DeleteGang | TellQueue, failures: int, why: str
) -> Event | None:
    """The Event about an action that fails, if any. ``failures``: in a row, this one included; ``why``: a sentence."""
    if failures != TOLD_AFTER:
        return None
    member = pod = ""
    match action:
        case CreatePod():
            member, pod = action.member, pod_name(job.metadata.name, action.member, action.incarnation)
            what = decisions.cannot_create(pod)
        case DeletePod():
            pod, what = action.name, decisions.cannot_delete(action.name)
        case DeleteGang():
            what = decisions.cannot_delete_gang()
        case TellQueue():
            what = decisions.cannot_change_workload(str(action.verb))
    return Event(Reason.ACTION_FAILS, decisions.action_fails(what, why), member, pod)


# Unreadable


def unreadable_event(why: str) -> Event:
    """The Event about a gang that can't be read. ``why``: what is wrong with it, in a sentence."""
    return Event(Reason.UNREADABLE, decisions.unreadable(why))
