"""Say what was seen of a fault."""

from collections.abc import Sequence
from typing import Final

from gangctl.api.names import SIGNAL_NAMES, signal_name
from gangctl.words.message import message
from gangctl.words.text import listed

_OF_SHELLS: Final = {126: "can't execute a command", 127: "finds no such command"}
"""What shells end with these codes for. Source: POSIX, Shell Command Language 2.8.2."""


def code_text(code: int) -> str:
    """An exit code in words: ``exit code 134 (128 + SIGABRT)``, as a shell ends after a child that a signal ended."""
    name = SIGNAL_NAMES.get(code - 128)
    return f"exit code {code} (128 + {name})" if name else f"exit code {code}"


@message
def cause(
    member: str = "",
    rank: int | None = None,
    reason: str = "",
    seen: str = "",
    words: str = "",
    printed: str = "",
    alike: bool = False,
    suspect: str = "",
) -> str:
    text = f"{seen}: {words}" if words else seen or reason
    text += f', printed "{printed}"' if printed and printed not in text else ""
    text = f"{member}{'' if rank is None else f' (rank {rank})'}: {text}" if member else text
    text += ", as its whole process group did at that moment" if alike else ""
    return f"{text}, and so did all others but {suspect}, which is suspected" if suspect else text


# A process ends


@message
def exited(code: int | None, of_shell: bool = False) -> str:
    if code is None:
        return ""
    return f"{code_text(code)}{f', as of a shell that {_OF_SHELLS[code]}' if of_shell else ''}"


@message
def exit_code_hidden(code: int | None) -> str:
    return f"exit code {code} of the launcher; that of its child is unknown"


@message
def killed_for_memory() -> str:
    return "killed because memory ran out"


@message
def ended_by_signal(signal: int) -> str:
    return f"ended by {signal_name(signal)}"


@message
def start_not_reported(seconds: float) -> str:
    return f"its worker did not report its start within {seconds:.0f} s"


@message
def stopped_inside() -> str:
    return "its worker was stopped inside the pod, not by the controller"


# Its framework or a user asks


@message
def framework_asked() -> str:
    return "the framework asked for a restart"


@message
def corruption_found(since_step: int, by: str = "") -> str:
    return f"the framework{f' of {by}' if by else ''} found that it computes wrongly, since step {since_step}"


@message
def token_changed() -> str:
    return "restartToken was changed"


@message
def more_are_ready() -> str:
    return "more members are ready, so that the gang can grow"


@message
def step_not_seen(step: int | None, no_folder: bool = False) -> str:
    folder = ", because its directory is empty, absent or does not answer" if no_folder else ""
    return f"it does not see checkpoint step {step}{folder}"


# A container ends, or can't start


@message
def container_ended() -> str:
    return "its container ended and was restarted"


@message
def container_killed_for_memory() -> str:
    return "its container was killed because memory ran out"


@message
def container_cannot_start_again(detail: str) -> str:
    return f"its container ended and can't be started again: {detail}"


@message
def container_ended_in_silence(detail: str = "") -> str:
    return f"its container ended, and its supervisor has not reported since{f': {detail}' if detail else ''}"


@message
def supervisor_restarted() -> str:
    return "its supervisor restarted and does not know the attempt"


@message
def silent_over_restarts(restarts: int, detail: str = "") -> str:
    said = f": {detail}" if detail else ""
    return f"its container restarted {restarts} times, and its supervisor has not reported{said}"


@message
def containers_do_not_start_again(detail: str) -> str:
    return f"its containers have ended and do not start again: {detail}"


@message
def did_not_connect(seconds: float, detail: str = "") -> str:
    return f"its supervisor did not connect within {seconds} s{f': {detail}' if detail else ''}"


# A pod, its node or a device


@message
def pod_gone() -> str:
    return "its pod is gone from the cluster"


@message
def pod_has_twin() -> str:
    return "an earlier pod of the same name is gone from the cluster, but its supervisor still reports"


@message
def pod_deleted() -> str:
    return "its pod is being deleted"


@message
def pod_ended(detail: str = "") -> str:
    return f"its pod has ended{f': {detail}' if detail else ''}"


@message
def pod_rejected(node: str, detail: str, todo: str) -> str:
    return f"its node {node} rejected its pod: {detail}; {todo}"


@message
def pod_disrupted(condition: str, taint: str | None = None, detail: str = "") -> str:
    which = "" if taint is None else f", for a taint of {f'its device {taint}' if taint else 'one of its devices'}"
    return f"its pod is disrupted: {condition}{which}{f'; {detail}' if detail else ''}"


@message
def pod_told_to_end() -> str:
    return "its pod was told to end"


@message
def process_stuck() -> str:
    return "a process outlived SIGKILL"


@message
def supervisor_ending() -> str:
    return "its supervisor is ending"


@message
def node_silent(node: str) -> str:
    return f"node {node} does not answer"


@message
def node_shows(node: str, what: str) -> str:
    return f"its node {node} shows {what}"


@message
def node_drained(node: str) -> str:
    return f"its node {node} is being drained"


@message
def device_health(device: str, resource: str, health: str, words: str = "") -> str:
    return f"device {device} ({resource}) is {health.lower()}{f': {words}' if words else ''}"


@message
def rank_slow(own_ms: float, typical_ms: float, excess: float) -> str:
    return (
        f"its own part of a step takes {own_ms} ms, and {typical_ms:.0f} ms on the other ranks of its role "
        f"({100 * excess:.0f} % longer)"
    )


@message
def did_not_answer(seconds: float) -> str:
    return f"it did not answer within {seconds} s"


@message
def found_no_port(ports: str, seconds: float) -> str:
    return f"it found no free port from {ports} within {seconds} s"


@message
def suspected() -> str:
    return "all others ended, and it did not"


# Hangs


@message
def deadline_computed(seconds: float, factor: float, longest: float, floor: float | None = None) -> str:
    least = "" if floor is None else f", and at least {floor:g} s"
    how = f"{factor} times the longest time between two reported steps ({longest:.3g} s){least}"
    return f"the deadline is {seconds:.3g} s: {how}"


@message
def last_step(step: int | None = None, process: int | None = None, reported: bool = True) -> str:
    if not reported:
        return "no step was reported"
    if step is None:
        return "its last step is not known"
    return f"its last step was {step}{'' if process is None else f' (process {process})'}"


@message
def all_hang(last: str, deadline: str = "") -> str:
    return "; ".join(filter(None, ("no rank makes progress", last, deadline)))


@message
def rank_left_behind(process: int | None, step: int, reached: int, deadline: str = "") -> str:
    who = "it" if process is None else f"process {process}"
    text = f"{who} makes no progress, and the others of its pod do; its last step was {step}"
    return "; ".join(filter(None, (f"{text}, and another has reached step {reached}", deadline)))


@message
def member_left_behind(last: str, reached: int, deadline: str = "") -> str:
    text = f"it makes no progress, and others do; {last}, and another rank has reached step {reached}"
    return "; ".join(filter(None, (text, deadline)))


@message
def all_hang_by_stacks(stacks: str) -> str:
    return f"no rank makes progress; {stacks}"


@message
def stopped_by_signal() -> str:
    return "its process was stopped by a signal"


@message
def outside_collective(frame: str) -> str:
    return f"it is not in the collective that the others wait in, but in {frame}"


@message
def elsewhere(frame: str, others: str) -> str:
    return f"it is in {frame}, and all others are in {others}"


@message
def many_outside_collective(members: Sequence[str]) -> str:
    return f"{listed(members)} are not in the collective that the others wait in"


@message
def stacks_unclear() -> str:
    return "the stacks of its members do not tell which of them holds the others up"


# The pod failure policy


@message
def not_charged(reason: str = "", grows: bool = False) -> str:
    what = f"{reason} is a disruption and" if reason else "a stop to grow" if grows else "a restart by hand"
    return f"no rule matches; {what} is not charged"


@message
def counts() -> str:
    return "no rule matches, so it counts"


@message
def rule_matches(matches: Sequence[str]) -> str:
    return " and ".join(matches)


@message
def code_matches(code: int, values: Sequence[int], is_in: bool) -> str:
    return f"exit code {code} is {'' if is_in else 'not '}in {list(values)}"


@message
def signal_matches(signal: str) -> str:
    return f"the signal is {signal}"


@message
def reason_matches(reason: str) -> str:
    return f"the reason is {reason}"


@message
def condition_matches(condition: str) -> str:
    return f"the pod has the condition {condition}"


@message
def device_matches(device: str | None, health: str | None) -> str:
    return f"device {device} is {health}"


@message
def log_matches(line: str, pattern: str) -> str:
    return f"its log has the line '{line}', which matches '{pattern}'"
