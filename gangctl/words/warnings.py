"""Say what a user should look at though the gang goes on: the condition Degraded."""

from collections.abc import Sequence

from gangctl.words.message import message
from gangctl.words.text import listed, moment, quoted


@message
def braked(members: Sequence[str], silent: int, expected: int, since: float) -> str:
    many, when = f"{silent} of {expected} members of all gangs were not", moment(since)
    text = f"the gang waits without a deadline: {many} heard at {when}"
    if members:
        text = f"{listed(members)} {'is' if len(members) == 1 else 'are'} not heard, as {many} at {when}"
    return (
        f"{text}: the controller suspects its own connection, so silence and deadlines count for nothing and no pod is "
        "replaced for it; workers train on; check the controller's Service, NetworkPolicies, DNS and CA"
    )


@message
def gangs_fail_together(reason: str) -> str:
    return (
        f"many gangs fail at once with {reason}; they are restarted in place, and no pod is replaced for it; look for "
        "what they share: storage, a registry, the network"
    )


@message
def runs_smaller(size: str, then: str, at: float = 0.0, queue: str = "", words: str = "") -> str:
    """``then``: what it waits for to grow: Members, Time, Checkpoint, or of its queue Asking, Quota or Resume."""
    grows = {
        "Asking": f"when queue {queue} gives it quota for more, for which it asks after {moment(at)}",
        "Resume": f"only when it was suspended and is resumed, since queue {queue} places its pods",
        "Quota": f"when queue {queue} gives it quota for more{quoted(words)}",
        "Members": "after a checkpoint, once more members are ready",
        "Time": f"after {moment(at)}, when the next checkpoint is complete",
        "Checkpoint": "when the next checkpoint is complete",
    }
    return f"it runs with {size}; it grows {grows.get(then, then)}"


@message
def hang_observed(cause: str) -> str:
    return f"{cause}; onHang is Observe, so nothing is restarted"


@message
def members_silent(members: Sequence[str], since: float, log: str) -> str:
    return (
        f"{listed(members)} {'has' if len(members) == 1 else 'have'} not been heard since {moment(since)}; workers "
        f"train on, and nothing is restarted or charged because of it; {_what_to_check(members, log)}"
    )


@message
def no_member_connects(members: Sequence[str], since: float, log: str) -> str:
    return (
        f"{listed(members)} {'runs' if len(members) == 1 else 'run'}, and no pod of the gang has been heard since "
        f"{moment(since)}; no pod is replaced because of it; {_what_to_check(members, log)}"
    )


def _what_to_check(members: Sequence[str], log: str) -> str:
    its = "its pod reaches" if len(members) == 1 else "their pods reach"
    return f"check whether {its} the controller (NetworkPolicy, DNS, Service, CA): {log}"


@message
def sidecar_says(member: str, at: float, words: str) -> str:
    return f"{member}'s sidecar ended at {moment(at)}: {words}"


@message
def log_says(member: str) -> str:
    return f"the log of {member}'s sidecar gives the reason"


@message
def restore_point_ignored(member: str, told: int | None, first: int | None) -> str:
    order = "to begin" if told is None else f"to restore step {told}"
    return (
        f"{member} was told {order}, and the first step it reported is {first}: let it load GANG_RESTORE_STEP, not "
        "what it finds"
    )


@message
def ranks_slow(ranks: Sequence[str], moved_before: bool = False) -> str:
    again = "it was moved before, so " if moved_before else ""
    return (
        f"{listed(ranks)} for its own part of a step than the other ranks of its role; {again}nothing is restarted "
        "because of it; check the clocks, temperature and links of its devices"
    )


@message
def slow_rank(member: str, rank: int, node: str, percent: int) -> str:
    return f"rank {rank} of {member} on node {node} takes about {percent} % longer"


@message
def modules_not_preloaded(member: str, module: str) -> str:
    return (
        f"the template of {member} could not import {module}; workers are forked without it, and import it themselves "
        "if they need it; correct start.preload.modules of the role, or the image"
    )


@message
def forks_late(members: Sequence[str], seconds: int) -> str:
    return (
        f"the forked workers of {listed(members)} have made no first step for {seconds} s, and executed ones were "
        "faster; the next attempt executes them, and gangctl restart begins it; start: {type: Exec} forks none"
    )


@message
def nodes_show(signals: Sequence[str]) -> str:
    return f"{listed(signals)}; nothing is restarted because of it"


@message
def node_of_member_shows(member: str, what: str) -> str:
    return f"the node of {member} shows {what}"


@message
def launcher_flag(role: str, flag: str) -> str:
    return (
        f"the command of role {role} has {flag}, which beats the environment: torchrun would restart by itself; remove "
        "the flag"
    )


@message
def pipeline_hides_failure(role: str) -> str:
    return (
        f"the command of role {role} ends with a pipeline, which has the exit code of its last program: a worker that "
        "fails counts as finished; write `set -o pipefail` before it, in bash"
    )
