"""Say what is decided, and why."""

from collections.abc import Sequence
from typing import Final

from gangctl.api.model import sentence
from gangctl.words.message import message
from gangctl.words.text import counted, listed, quoted

_STAYS: Final = "attempt and restore point stay"
_HOW_ON: Final = "change restartToken, or set suspend to true and back, to go on"


# A gang begins


@message
def submitted(attempt: int, pods: int) -> str:
    return f"attempt {attempt} needs {counted(pods, 'pod')}, which are created now"


@message
def submitted_suspended() -> str:
    return "it was submitted suspended"


@message
def unreadable(detail: str) -> str:
    return (
        "the controller cannot read this gang, so it leaves it alone: workers train on, and no fault is mended. "
        f"{detail}"
    )


# An attempt ends, and the next one gathers


@message
def attempt_runs(attempt: int) -> str:
    return f"attempt {attempt} runs"


@message
def attempt_ends(attempt: int, cause: str, gathers: str, then: str = "") -> str:
    """``gathers``: from where; ``then``: which pods are replaced."""
    return f"attempt {attempt} ends: {cause}; all workers stop, and {gathers}{f'; {then}' if then else ''}"


@message
def attempt_gathers(attempt: int, where: str = "") -> str:
    return f"attempt {attempt} gathers{f' {where}' if where else ''}"


@message
def token_accepted(gathers: str) -> str:
    return f"restartToken was changed; {gathers}"


@message
def from_step(step: int | None) -> str:
    return "from the beginning" if step is None else f"from step {step}"


@message
def from_newest_step(asked: str) -> str:
    return (
        f"from the newest step (the request to start {asked} counted when this token came first; ask again with a new "
        "token)"
    )


@message
def cause_corrected(attempt: int, cause: str, charged: bool) -> str:
    return f"attempt {attempt} had another cause: {cause}; {'' if charged else 'not '}charged to the budget"


@message
def attempt_ended(attempt: int, cause: str) -> str:
    return f"attempt {attempt} ended: {cause}"


# Pods are replaced


@message
def member_replaced(member: str, detail: str) -> str:
    return f"{member} ({detail})"


@message
def get_new_pods(members: Sequence[str], cause: str = "", others_wait: bool = False) -> str:
    text = f"{listed(members)} {'gets a new pod' if len(members) == 1 else 'get new pods'}"
    text += ", and the other members wait" if others_wait else ""
    return f"{text}; cause: {cause}" if cause else text


@message
def spares_get_new_pods(members: Sequence[str]) -> str:
    names = listed(members)
    return f"spare {names} gets a new pod" if len(members) == 1 else f"spares {names} get new pods"


@message
def all_replaced(because: str = "", members: Sequence[str] = (), cause: str = "") -> str:
    """``because``: Most, Many or nothing."""
    why = f" because {because.lower()} members need a new one" if because else ""
    who = f": {listed(members)}" if members else ""
    return f"every pod is replaced{why}{who}{f'; cause: {cause}' if cause else ''}"


@message
def quota_asked(queue: str, members: int) -> str:
    return f"queue {queue} is asked for the quota of {counted(members, 'more member')}, so that the gang can grow"


@message
def quota_given(queue: str, members: Sequence[str]) -> str:
    return f"queue {queue} gives quota for {listed(members)}, so that the gang can grow; {_their_pods(members)} created"


@message
def quota_not_needed(members: Sequence[str]) -> str:
    return f"the gang names no queue any more; {_their_pods(members)} created: {listed(members)}"


@message
def quota_not_used(queue: str, members: Sequence[str], seconds: int) -> str:
    return (
        f"the quota that queue {queue} gave for {listed(members)} is given back: no more members were ready within "
        f"{seconds} s; {_their_pods(members)} deleted"
    )


@message
def quota_reclaimed(queue: str, words: str = "") -> str:
    return f"queue {queue} takes back quota by which the gang has grown{quoted(words)}"


@message
def members_without_quota(members: Sequence[str], because: str) -> str:
    return f"{because}; {_their_pods(members)} deleted: {listed(members)}"


def _their_pods(members: Sequence[str]) -> str:
    return "its pod is" if len(members) == 1 else "their pods are"


@message
def earlier_pod_gone() -> str:
    return "an earlier pod, which may have run a worker, is gone"


@message
def barrier_late(members: Sequence[str], seconds: float, ports: str = "") -> str:
    what = f"found no free port from {ports}" if ports else "did not answer"
    return f"{listed(members) or 'the gang'} {what} within {seconds} s"


@message
def late_replaced(late: str, members: Sequence[str]) -> str:
    then = f"{'a new pod is' if len(members) == 1 else 'new pods are'} created for {listed(members)}"
    return f"{late}; {then if members else 'every member is ready, so no pod is replaced yet'}"


@message
def late_all_replaced(late: str, again: bool) -> str:
    return f"{late}{' again' if again else ''}; every pod is replaced"


@message
def late_for_good(late: str) -> str:
    return f"{late}, and new pods did not help"


# An attempt starts


@message
def attempt_starts(
    attempt: int,
    step: int | None,
    tier: str = "",
    since: str = "",
    steps_made: int | None = None,
    cause: str = "",
    size: str = "",
) -> str:
    """``since``: Requested, Incomplete or nothing; ``size``: of a smaller attempt."""
    where = "from the beginning" if step is None else f"from step {step} ({tier})"
    if since == "Requested":
        where += ", as requested"
    elif since == "Incomplete":
        where += ", since no checkpoint was complete for every rank"
    elif steps_made is not None:
        where += f", since no checkpoint was found of the {counted(steps_made, 'step')} that it had made"
    where += f", with {size}" if size else ""
    return f"attempt {attempt} starts {where}{f'; cause of the restart: {cause}' if cause else ''}"


@message
def starts_smaller(role: str, members: int, wanted: int, waited: int = 0, queue: str = "") -> str:
    text = f"{members} of {wanted} members of {role}"
    if queue:
        return f"{text}, because queue {queue} gives quota for no more"
    return f"{text}, because no more were ready within {waited} s" if waited else text


@message
def roles_start(attempt: int, roles: Sequence[str], others: Sequence[str]) -> str:
    are = "is" if len(others) == 1 else "are"
    return f"the workers of {listed(roles)} start in attempt {attempt}, because {listed(others)} {are} ready"


@message
def spare_took_rank(member: str, place: str, before: str = "") -> str:
    return f"{member} takes the rank of {place}{f', which {before} had' if before else ''}"


@message
def step_rejected(step: int, tier: str) -> str:
    return f"step {step} of tier {tier} is not used until it is written again"


@message
def signal_kept(member: str, others: int, seconds: float, planned: bool) -> str:
    more = f" and {counted(others, 'other member')}" if others else ""
    field = "plannedStopGracePeriodSeconds" if planned else "stopGracePeriodSeconds"
    return (
        f"The workers of {member}{more} did not stop in time and were killed after {seconds:g} s, for which the "
        "restart waited. Let the script end on SIGTERM (for JAX, set jax_enable_preemption_service to False) or, with "
        f"gangclient.run, see in the worker's log where it was. Or lower recovery.{field}."
    )


# What an incident comes to


@message
def charged(cause: str, charged: bool, rule: str = "", why: str = "") -> str:
    named = f"rule {rule}: " if rule else ""
    return f"{cause}; {'charged' if charged else 'not charged'} to the budget ({named}{why})"


@message
def failed_by_rule(cause: str, rule: str, why: str) -> str:
    return f"{cause}; rule {rule} has action FailJob: {why}"


@message
def no_progress(cause: str) -> str:
    return f"{cause}; restarts from the same restore point make no progress, and nothing is left to try"


@message
def starts_failed(cause: str, tries: int) -> str:
    return f"{cause}; {counted(tries, 'start')} in a row failed like this; correct image or command in the template"


@message
def budget_exhausted(cause: str, used: int, window: int, group: str = "") -> str:
    whose, whole = (f"the budget of group {group}", " of all its gangs") if group else ("the budget", "")
    return f"{cause}; {whose} is used up: {counted(used, 'restart')}{whole} in {window} s"


@message
def token_too_late(because: str) -> str:
    return f"{because}; restartToken was changed too late to avert this"


# A gang is held, is suspended, goes on or ends


@message
def held(because: str, out: str = "") -> str:
    return sentence(f"held: {because}", f"; {out or 'change restartToken to go on'}")


@message
def hold_timeout_passed(seconds: float) -> str:
    return f"it was held for {seconds} s, and restartToken was not changed"


@message
def suspended(asked: str, was_held: bool = False) -> str:
    then = f"; it was Held: {_HOW_ON}" if was_held else ""
    return f"{asked}; all workers stop, with the planned grace, and the pods are deleted; {_STAYS}{then}"


@message
def spec_suspends() -> str:
    return "spec.suspend is true"


@message
def roles_changed() -> str:
    return "the roles have changed"


@message
def given_back(because: str) -> str:
    return f"suspended, its pods are deleted: {because}; {_HOW_ON}"


@message
def goes_on() -> str:
    return "suspended; its spec was changed so that it goes on"


@message
def still_suspended(pods_left: bool = False) -> str:
    return f"suspended{'; it waits for its old pods to end' if pods_left else ''}"


@message
def resumed(attempt: int) -> str:
    return f"resumed; new pods are created for attempt {attempt}"


@message
def succeeded(before_stop: bool = False) -> str:
    ended = "had ended with exit code 0 before any was stopped" if before_stop else "has ended with exit code 0"
    return f"every worker that the success policy counts {ended}"


@message
def active_deadline_passed(seconds: float | None) -> str:
    return f"the gang was active for longer than {seconds} s"


@message
def kept_long_enough(seconds: float | None) -> str:
    return f"it ended {seconds} s ago and is deleted"


# Directives and Events


@message
def pod_was_replaced() -> str:
    return "its pod was replaced"


@message
def is_spare() -> str:
    return "it is a spare"


@message
def pod_deleted_again(pod: str, times: int) -> str:
    return (
        f"pod {pod} was created {times} times, and something deletes it before it runs; it is created again, less and "
        "less often: find out what deletes pods here (a descheduler, a policy for pending pods)"
    )


@message
def action_fails(action: str, detail: str) -> str:
    return f"{action}, and it is tried again: {detail}"


@message
def cannot_create(pod: str) -> str:
    return f"pod {pod} can't be created"


@message
def cannot_delete(pod: str) -> str:
    return f"pod {pod} can't be deleted"


@message
def cannot_delete_gang() -> str:
    return "the gang can't be deleted"


@message
def cannot_change_workload(verb: str) -> str:
    return f"the gang's Workload in its queue can't be changed ({verb})"


@message
def node_at_fault(namespace: str, gang: str, cause: str) -> str:
    return (
        f"GangJob {namespace}/{gang}, {cause}; gangctl does not cordon the node, and others may get what the gang has "
        "left"
    )


@message
def rank_slow_on_node(namespace: str, gang: str, member: str, rank: int, excess: float) -> str:
    return (
        f"GangJob {namespace}/{gang}, {member} (rank {rank}): it takes {100 * excess:.0f} % longer for its own part "
        "of a step than the other ranks of its role; check the clocks, temperature and links of its devices"
    )


@message
def unstored(detail: str) -> str:
    return f"nothing is restarted, stopped or started until the status can be stored: {detail}"


# The device guard


@message
def pod_evicted(device: str, resource: str, node: str, words: str = "") -> str:
    return f"{_unhealthy(device, resource, node, words)} The pod was evicted; its owner replaces it."


@message
def eviction_refused(device: str, resource: str, node: str, detail: str, words: str = "") -> str:
    seen = _unhealthy(device, resource, node, words)
    return f"{seen} The pod is not evicted yet, and the controller tries again: {detail}"


def _unhealthy(device: str, resource: str, node: str, words: str) -> str:
    return f"Device {device} ({resource}) on node {node} is unhealthy{f' ({words})' if words else ''}."


@message
def device_may_recover(device: str) -> str:
    return f"{device} may be healthy again soon"


@message
def evictions_unknown() -> str:
    return "this leader does not know the evictions of the last one"


@message
def refused_in_a_row(times: int) -> str:
    return f"its eviction was refused, {times} in a row"


@message
def evictions_of_node(pods: int, node: str) -> str:
    return f"{pods} pods of node {node} were evicted in the last minute"


@message
def evictions_of_cluster(pods: int) -> str:
    return f"{pods} pods were evicted in the last minute"
