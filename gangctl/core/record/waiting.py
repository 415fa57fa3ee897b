"""What a gang that waits says: for which members, since when, and what is known of them.

The rule: the status says it within FIRST_SECONDS of the wait, so a restart that takes less costs no write. What waiting
alone will hardly end is said at once. Then news are said when the message is as old as that, or as AGAIN_SECONDS where
more members are waited for than are named::

    due = begin of the phase                             of a trouble, while the message tells none
          max(begin of the phase, last write) + FIRST    of the first message, and where few members are waited for
          max(begin of the phase, last write) + AGAIN    where many are, and the message tells of the wait

Members of which the same is known are told together, so the message of a large gang stays short. It must not tell ages,
which would change it all the time, and another time alone is no news. What is known is put together only when it may be
due: it costs as much as a decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from gangctl.api.model import sentence
from gangctl.api.status import AwaitedAll
from gangctl.core.facts.barrier import Blocking, Suspect
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.ports import is_without_port, port_range
from gangctl.core.facts.silence import on_lost_node
from gangctl.core.facts.starts import advice, told
from gangctl.core.facts.text import LISTED, listed, moment
from gangctl.core.facts.world import Heard, Pod
from gangctl.core.policy import admission
from gangctl.core.policy.replacement import creatable_at
from gangsidecar.wire import Phase

FIRST_SECONDS: Final = 4.0
AGAIN_SECONDS: Final = 30.0
SHOWN: Final = 3
"""Different things that are told of members; the members of which other things are known are counted."""
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")
_CANT: Final = "can't start: "
_NO_PORT: Final = "found no free port"
_WHO_HAS_PORTS: Final = (
    "other gangs or services on the same host have them, or what still runs in the pod; end those, "
    "or set spec.network.basePort and portCount"
)
_STARTING: Final = "images are pulled, or volumes mounted"
_UNREACHED: Final = "got no connection to the controller"
_TROUBLES: Final = (_CANT, _UNREACHED, _NO_PORT, admission.REFUSED)


class _Known(NamedTuple):
    """What is known of a member: ``before`` a time and ``after`` it, of several ones. Equal ones are told together."""

    before: str
    after: str = ""
    is_trouble: bool = False
    """Whether waiting alone will hardly end it."""


class Waiting(NamedTuple):
    """What an incomplete barrier waits for."""

    stops: dict[str, Callable[[], tuple[_Known, float]]]
    """The pods that may still run a worker, in words: a member stands for its current pod."""
    starts: list[str]
    """The members that have to be ready."""

    @property
    def members(self) -> str:
        """In words: ``worker-0 to stop and for worker-1 to be ready``."""
        parts = [(list(self.stops), "to stop"), (self.starts, "to be ready")]
        return " and for ".join(f"{listed(names)} {what}" for names, what in parts if names)


def waiting(gang: Gang, blocking: Blocking, missing: Sequence[str]) -> Waiting:
    """What the barrier waits for. ``missing``: the members that hold the places without a ready member."""
    stops = _stopping(gang, blocking)
    return Waiting(stops, [name for name in missing if name not in stops])


def due_at(gang: Gang, found: Waiting | None = None) -> float:
    """When the message of the status has to tell of the wait as it is then, if it doesn't by then."""
    status = gang.status
    tells = status.message.startswith(f"attempt {status.attempt} waits ")
    since = max(status.phase_time, status.observed_time)
    if found is None:
        return since + FIRST_SECONDS
    if not any(one in status.message for one in _TROUBLES) and any(_is_trouble(gang, name) for name in found.starts):
        return status.phase_time
    many = len(found.stops) + len(found.starts) > LISTED
    return since + (AGAIN_SECONDS if tells and many else FIRST_SECONDS)


def says_otherwise(gang: Gang, text: str) -> bool:
    """Whether the message of the status says something else, and not that the cluster refuses the pods."""
    said = gang.status.message
    return _TIMES.sub("", said) != _TIMES.sub("", sentence(text)) and admission.creates(gang, gang.status)


def known(gang: Gang, found: Waiting) -> str:
    """What is known of those that are waited for, and were named before."""
    groups: dict[_Known, list[tuple[float, str]]] = {}
    for name, look in found.stops.items():
        what, since = look()
        groups.setdefault(what, []).append((since, name))
    for name in found.starts:
        what, since = _of_member(gang, name)
        groups.setdefault(what, []).append((since, name))
    shown = sorted(groups, key=lambda one: not one.is_trouble)[:SHOWN]
    alone = len(groups) == 1
    texts = [_told(one, groups[one], alone=alone) for one in shown]
    left = sum(map(len, groups.values())) - sum(len(groups[one]) for one in shown)
    return "; ".join([*texts, *([f"other things are known of {left} more"] if left else [])])


def _is_trouble(gang: Gang, name: str) -> bool:
    """Whether waiting alone will hardly make a member ready."""
    pod, heard = gang.pods.get(name), gang.heard_by_member.get(name)
    if pod is None:
        return bool(admission.refused(gang))
    if heard is None:
        return _is_unreached(gang, pod) or _cannot_start(pod)
    return is_without_port(gang, name)


def _cannot_start(pod: Pod) -> bool:
    return pod.started_at is None and bool(pod.reason) and not pod.terminated and not pod.deleting


def _is_unreached(gang: Gang, pod: Pod) -> bool:
    """Whether its sidecar has told this leader that it gets no connection. It may have had one to the leader before."""
    end = pod.sidecar_end
    return end is not None and end.unreached and end.at >= gang.observed.listening_since


def _told(known: _Known, entries: Sequence[tuple[float, str]], *, alone: bool) -> str:
    """``alone``: it is known of all members, which were named before."""
    names, earliest = [name for _, name in entries], min(entries)[0]
    time = f" {moment(earliest)}" if not known.before.startswith(_CANT) else ""
    who = listed(names) if not alone else "it" if len(names) == 1 else "they"
    one = len(names) == 1 and known.before.startswith("have ")
    return (
        f"{who} {'has ' if one else ''}{known.before.removeprefix('have ') if one else known.before}{time}{known.after}"
    )


# What has to stop


def _stopping(gang: Gang, blocking: Blocking) -> dict[str, Callable[[], tuple[_Known, float]]]:
    """The pods that may still run a worker, in words -> looks what is known of each."""
    heard = gang.heard_by_member
    current: dict[str, Callable[[], tuple[_Known, float]]] = {
        name: partial(_of_worker, gang, heard.get(name)) for name in blocking.certain
    }
    earlier: dict[str, Callable[[], tuple[_Known, float]]] = {}
    for one in blocking.doubtful:
        (current if gang.is_current(one.member, one.incarnation) else earlier)[one.member] = partial(
            _of_suspect, gang, one
        )
    named = {name: current[name] for name in _in_order(gang, current)}
    named |= {f"an earlier pod of {name}": earlier[name] for name in _in_order(gang, earlier)}
    if blocking.rest is not None:
        named["every earlier pod"] = partial(_of_rest, gang, blocking.rest)
    return named


def _of_rest(gang: Gang, rest: AwaitedAll) -> tuple[_Known, float]:
    return _Known("have not been seen to end since"), rest.vanished_time or gang.status.phase_time


def _of_worker(gang: Gang, heard: Heard | None) -> tuple[_Known, float]:
    if heard is not None and heard.report.phase in {Phase.STOPPING, Phase.STUCK}:
        return _Known("began to stop at"), heard.phase_since
    return _Known("got the order to stop at"), gang.status.phase_time


def _of_suspect(gang: Gang, one: Suspect) -> tuple[_Known, float]:
    """What is known of a pod in which a worker may run, though that isn't certain."""
    if one.heard is not None and one.heard.connected:
        return _of_worker(gang, one.heard)
    pod = one.shown
    node = ", and its node does not answer" if pod is not None and on_lost_node(gang, pod) else ""
    if pod is not None and _cannot_start(pod):
        node = f", and its container {_CANT}{told(pod)}"
    if one.heard is not None:
        return _Known("have not reported since", node), one.heard.at
    return _Known("have not reported to this controller since", node), gang.observed.listening_since


def _in_order(gang: Gang, names: Iterable[str]) -> list[str]:
    """In the order of roles and indexes; those that are no members any more come last."""
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
        return _Known("have not reported since"), heard.at
    if heard.report.phase is Phase.STOPPING:
        return _Known("began to stop at"), heard.phase_since
    if is_without_port(gang, name):
        taken = f"{_NO_PORT} from {port_range(gang)} since"
        return _Known(taken, f": {_WHO_HAS_PORTS}", is_trouble=True), heard.phase_since
    return _Known("have been connected, and not ready, since"), max(gang.status.phase_time, heard.since)


def _of_no_pod(gang: Gang, name: str) -> tuple[_Known, float]:
    at = creatable_at(gang.replaced.get(name, gang.status.recreated))
    if at > gang.now:
        return _Known("will get a new pod at"), at
    refused = admission.refused(gang)
    why = f": {refused}" if refused else ""
    return _Known("have had no pod since", why, is_trouble=bool(refused)), gang.status.phase_time


def _of_start(gang: Gang, pod: Pod) -> tuple[_Known, float]:
    """What keeps a pod from reporting to this leader for the first time."""
    end, listens = pod.sidecar_end, gang.observed.listening_since
    ended = "" if end is None else f"the sidecar ended at {moment(end.at)}: {end.said}"
    if _cannot_start(pod):
        todo = advice(pod)
        return _Known(_CANT + told(pod), f"; {todo}" if todo else "", is_trouble=True), 0.0
    if end is not None and _is_unreached(gang, pod):
        return _Known(f"{_UNREACHED} until", f": {end.said}", is_trouble=True), end.at
    if pod.scheduled_at is None:
        return _Known("have waited for a node since"), pod.created_at
    if pod.started_at is None:
        return _Known("got a node at", f" ({ended or pod.starting or _STARTING})"), pod.scheduled_at
    ended = f" ({ended})" if ended else ""
    if pod.started_at < listens:
        return _Known("have not reported to this controller since", ended), listens
    return _Known("started at", f", with no report since{ended}"), pod.started_at
