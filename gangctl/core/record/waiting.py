"""What a gang that waits says: for which members, since when, and what is known of them.

The rule: the status says it within FIRST_SECONDS of the wait, so a restart that takes less costs no write. What waiting
alone will hardly end is said at once. Then news are said when the message is as old as that, or as AGAIN_SECONDS where
more members are waited for than are named::

    due = begin of the phase                             of a trouble, while the message tells none
          max(begin of the phase, last write) + FIRST    of the first message, and where few members are waited for
          max(begin of the phase, last write) + AGAIN    where many are, and the message tells of the wait

Members of which the same is known are named together, so the message of a large gang stays short. It must not have
ages, which would change it all the time, and another time alone isn't news. What is known is put together only when it
may be due: it costs as much as a decision.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gangctl.api.names import MAX_MEMBERS
from gangctl.api.status import AwaitedAll
from gangctl.core.facts.barrier import Blocking, Suspect, is_without_port, port_range
from gangctl.core.facts.fitness import on_lost_node, reason_text, start_advice
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard, Pod
from gangctl.core.policy import admission
from gangctl.core.policy.pods import creatable_at
from gangctl.words.message import Message
from gangctl.words.text import LISTED
from gangctl.words.waits import (
    WaitState,
    earlier_pod,
    every_earlier_pod,
    is_wait,
    known_of,
    members_awaited,
    says_trouble,
    sidecar_ended,
)
from gangsidecar.wire import Phase

FIRST_SECONDS: Final = 4.0
AGAIN_SECONDS: Final = 30.0
MAX_STATES: Final = 3
"""Different things that are said of members; the members of which other things are known are counted."""


class _Known(NamedTuple):
    """How far a member has come. Members with the same are named together."""

    state: WaitState
    detail: str = ""
    todo: str = ""
    node_lost: bool = False
    cannot_start: str = ""
    ended: str = ""
    is_trouble: bool = False
    """Whether waiting alone will hardly end it."""


class Waiting(NamedTuple):
    """What an incomplete barrier waits for."""

    stops: dict[str, Suspect | AwaitedAll | None]
    """The pods that may still run a worker, in words: a member stands for its current pod. None: beyond doubt."""
    starts: list[str]
    """The members that have to be ready."""

    @property
    def members(self) -> Message:
        """In words: ``worker-0 to stop and for worker-1 to be ready``."""
        return members_awaited(list(self.stops), self.starts)


class Known(NamedTuple):
    """What a message says of those that are waited for."""

    texts: tuple[Message, ...] = ()
    others: int = 0
    """Members of which other things are known."""
    trouble: bool = False
    """Whether waiting alone will hardly end it."""


def find_waiting(gang: Gang, blocking: Blocking, missing: Sequence[str]) -> Waiting:
    """Return what the barrier waits for. ``missing``: the members that hold the places without a ready member."""
    stops = _stopping(gang, blocking)
    return Waiting(stops, [name for name in missing if name not in stops])


def due_at(gang: Gang, found: Waiting | None = None) -> float:
    """Return when the message of the status has to be about the wait as it is then, if it isn't by then."""
    status, said = gang.status, gang.status.said
    since = max(status.phase_time, status.observed_time)
    if found is None:
        return since + FIRST_SECONDS
    if not says_trouble(said) and any(_is_trouble(gang, name) for name in found.starts):
        return status.phase_time
    many = len(found.stops) + len(found.starts) > LISTED
    return since + (AGAIN_SECONDS if many and is_wait(said, status.attempt) else FIRST_SECONDS)


def says_otherwise(gang: Gang, because: Message) -> bool:
    """Return whether the message of the status says something else, and not that the cluster refuses the pods."""
    return not because.is_same(gang.status.said) and admission.creates(gang, gang.status)


def known_of_waiting(gang: Gang, found: Waiting) -> Known:
    """Return what is known of those that are waited for, and were named before."""
    groups: dict[_Known, list[tuple[float, str]]] = {}
    for name, stops in found.stops.items():
        what, since = _of_stop(gang, name, stops)
        groups.setdefault(what, []).append((since, name))
    for name in found.starts:
        what, since = _of_member(gang, name)
        groups.setdefault(what, []).append((since, name))
    shown = sorted(groups, key=lambda group: not group.is_trouble)[:MAX_STATES]
    alone = len(groups) == 1
    texts = tuple(
        known_of(
            [name for _, name in groups[group]],
            group.state.value,
            min(groups[group])[0],
            group.detail,
            group.todo,
            group.node_lost,
            group.cannot_start,
            group.ended,
            alone,
        )
        for group in shown
    )
    others = sum(map(len, groups.values())) - sum(len(groups[group]) for group in shown)
    return Known(texts, others, any(group.is_trouble for group in groups))


def _is_trouble(gang: Gang, name: str) -> bool:
    """Whether waiting alone will hardly make a member ready."""
    pod, heard = gang.pods.get(name), gang.heard_by_member.get(name)
    if pod is None:
        return admission.pods_refusal(gang) is not None
    if heard is None:
        return _is_unreached(gang, pod) or _cannot_start(pod)
    return is_without_port(gang, name)


def _cannot_start(pod: Pod) -> bool:
    return pod.started_at is None and bool(pod.reason) and not pod.terminated and not pod.deleting


def _is_unreached(gang: Gang, pod: Pod) -> bool:
    """Whether its sidecar has said that it gets no connection to this leader. It may have had one to another."""
    end = pod.sidecar_end
    return end is not None and end.unreached and end.at >= gang.observed.listening_since


# What has to stop


def _stopping(gang: Gang, blocking: Blocking) -> dict[str, Suspect | AwaitedAll | None]:
    current: dict[str, Suspect | None] = dict.fromkeys(blocking.certain)
    earlier: dict[str, Suspect] = {}
    for suspect in blocking.doubtful:
        pods = current if gang.is_current(suspect.member, suspect.incarnation) else earlier
        pods[suspect.member] = suspect
    named: dict[str, Suspect | AwaitedAll | None] = {name: current[name] for name in _in_order(gang, current)}
    named |= {_earlier_pod(name): earlier[name] for name in _in_order(gang, earlier)}
    if blocking.rest is not None:
        named[every_earlier_pod()] = blocking.rest
    return named


_earlier_pod: Final = lru_cache(MAX_MEMBERS)(earlier_pod)
"""Where every pod of a large gang is replaced, each decision names them all."""


def _of_stop(gang: Gang, name: str, stops: Suspect | AwaitedAll | None) -> tuple[_Known, float]:
    match stops:
        case None:
            return _of_worker(gang, gang.heard_by_member.get(name))
        case AwaitedAll():
            return _Known(WaitState.NOT_SEEN_TO_END), stops.vanished_time or gang.status.phase_time
        case _:
            return _of_suspect(gang, stops)


def _of_worker(gang: Gang, heard: Heard | None) -> tuple[_Known, float]:
    if heard is not None and heard.report.phase in {Phase.STOPPING, Phase.STUCK}:
        return _Known(WaitState.STOPPING), heard.phase_since
    return _Known(WaitState.STOP_ORDERED), gang.status.phase_time


def _of_suspect(gang: Gang, suspect: Suspect) -> tuple[_Known, float]:
    """What is known of a pod in which a worker may run, though that isn't certain."""
    heard, pod = suspect.heard, suspect.shown
    if heard is not None and heard.connected:
        return _of_worker(gang, heard)
    lost = pod is not None and on_lost_node(gang, pod)
    why = reason_text(pod) if pod is not None and _cannot_start(pod) else ""
    if heard is not None:
        return _Known(WaitState.SILENT, node_lost=lost, cannot_start=why), heard.at
    return _Known(WaitState.NEVER_HEARD, node_lost=lost, cannot_start=why), gang.observed.listening_since


def _in_order(gang: Gang, names: Iterable[str]) -> list[str]:
    """In the order of roles and indexes; those that aren't members any more come last."""
    found = frozenset(names)
    return [*[name for name in gang.members if name in found], *sorted(found - gang.members.keys())]


# What has to be ready


def _of_member(gang: Gang, name: str) -> tuple[_Known, float]:
    pod, heard = gang.pods.get(name), gang.heard_by_member.get(name)
    if pod is None:
        return _of_no_pod(gang, name)
    if heard is None or (not heard.connected and _cannot_start(pod)):
        return _of_start(gang, pod)
    if not heard.connected:
        return _Known(WaitState.SILENT), heard.at
    if heard.report.phase is Phase.STOPPING:
        return _Known(WaitState.STOPPING), heard.phase_since
    if is_without_port(gang, name):
        return _Known(WaitState.NO_FREE_PORT, port_range(gang), is_trouble=True), heard.phase_since
    return _Known(WaitState.CONNECTED), max(gang.status.phase_time, heard.since)


def _of_no_pod(gang: Gang, name: str) -> tuple[_Known, float]:
    at = creatable_at(gang.replaced.get(name, gang.status.recreated))
    if at > gang.now:
        return _Known(WaitState.BACKING_OFF), at
    refused = admission.pods_refusal(gang)
    return _Known(WaitState.NO_POD, refused or "", is_trouble=refused is not None), gang.status.phase_time


def _of_start(gang: Gang, pod: Pod) -> tuple[_Known, float]:
    """What keeps a pod from reporting to this leader for the first time."""
    end, listens = pod.sidecar_end, gang.observed.listening_since
    ended = "" if end is None else sidecar_ended(end.at, end.said)
    if _cannot_start(pod):
        return _Known(WaitState.CANNOT_START, reason_text(pod), start_advice(pod), is_trouble=True), 0.0
    if end is not None and _is_unreached(gang, pod):
        return _Known(WaitState.UNREACHED, end.said, is_trouble=True), end.at
    if pod.scheduled_at is None:
        return _Known(WaitState.UNSCHEDULED), pod.created_at
    if pod.started_at is None:
        return _Known(WaitState.SCHEDULED, pod.starting, ended=ended), pod.scheduled_at
    if pod.started_at < listens:
        return _Known(WaitState.NEVER_HEARD, ended=ended), listens
    return _Known(WaitState.STARTED, ended=ended), pod.started_at
