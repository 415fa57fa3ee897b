"""What a gang that waits says: for which members, since when, and what is known of them.

The rule: the status says it within FIRST_SECONDS of the wait, so a restart that takes less costs no write. What waiting
alone will hardly end is said at once; other news, when the message is as old as that. Where many members are waited
for, it is no news which ones they are::

    due = begin of the phase                               of a trouble, while the message tells none
          max(begin of the phase, last write) + FIRST      of what the message doesn't tell
          max(begin of the phase, last write) + AGAIN      of the same, where more members are waited for than are named

Members of which the same is known are told together, so the message of a large gang stays short. It must not tell ages,
which would change it all the time, and another time alone is no news.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gangctl.api.model import sentence
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


class _Known(NamedTuple):
    """What is known of a member: ``before`` a time and ``after`` it, of several ones. Equal ones are told together."""

    before: str
    after: str = ""
    mark: str = ""
    """A part by which a message tells it, if waiting alone will hardly end it."""


class Waiting(NamedTuple):
    """What an incomplete barrier waits for."""

    members: str
    """In words: ``worker-0 to stop and for worker-1 to be ready``; empty if for none."""
    known: str
    """What is known of them; empty if nothing is."""
    marks: tuple[str, ...]
    """Parts of ``known`` by which a message tells it, whatever the members and times are."""
    number: int
    """How many members it waits for."""
    is_trouble: bool
    """Whether it is something that waiting alone will hardly end."""


def waiting(gang: Gang, blocking: Blocking, missing: Sequence[str]) -> Waiting:
    """What the barrier waits for. ``missing``: the members that hold the places without a ready member."""
    stops = _stopping(gang, blocking)
    starts = [name for name in missing if name not in stops]
    parts = [(list(stops), "to stop"), (starts, "to be ready")]
    members = " and for ".join(f"{listed(names)} {what}" for names, what in parts if names)
    groups: dict[_Known, list[tuple[float, str]]] = {}
    for name, (known, since) in (*stops.items(), *((name, _of_member(gang, name)) for name in starts)):
        groups.setdefault(known, []).append((since, name))
    shown = sorted(groups, key=lambda one: not one.mark)[:SHOWN]
    alone = len(groups) == 1
    texts = [_told(one, groups[one], alone=alone) for one in shown]
    left = sum(map(len, groups.values())) - sum(len(groups[one]) for one in shown)
    texts += [f"other things are known of {left} more"] if left else []
    marks = tuple(one.mark or one.before.removeprefix("have ") for one in shown)
    return Waiting(members, "; ".join(texts), marks, len(stops) + len(starts), any(one.mark for one in shown))


def stopping(gang: Gang, blocking: Blocking) -> list[str]:
    """The pods that may still run a worker, in words: a member stands for its current pod."""
    return list(_stopping(gang, blocking))


def due_at(gang: Gang, text: str, found: Waiting | None = None) -> float | None:
    """When the message of the status is to become ``text``; None if it says that, or that the pods are refused."""
    said, new = gang.status.message, sentence(text)
    if _TIMES.sub("", said) == _TIMES.sub("", new) or not admission.creates(gang, gang.status):
        return None
    since = max(gang.status.phase_time, gang.status.observed_time)
    if found is None:
        return since + FIRST_SECONDS
    if found.is_trouble and not any(one in said for one in (_CANT, _UNREACHED, _NO_PORT)):
        return gang.status.phase_time
    is_known = found.number > LISTED and all(one in said for one in map(sentence, found.marks) if one in new)
    return since + (AGAIN_SECONDS if is_known else FIRST_SECONDS)


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


def _stopping(gang: Gang, blocking: Blocking) -> dict[str, tuple[_Known, float]]:
    """The pods that may still run a worker, in words -> what is known of each."""
    known = {name: _of_worker(gang, gang.heard_by_member.get(name)) for name in blocking.certain}
    earlier: dict[str, tuple[_Known, float]] = {}
    for one in blocking.doubtful:
        (known if gang.is_current(one.member, one.incarnation) else earlier)[one.member] = _of_suspect(gang, one)
    named = {name: known[name] for name in _in_order(gang, known)}
    named |= {f"an earlier pod of {name}": earlier[name] for name in _in_order(gang, earlier)}
    if blocking.rest is not None:
        since = blocking.rest.vanished_time or gang.status.phase_time
        named["every earlier pod"] = _Known("have not been seen to end since"), since
    return named


def _of_worker(gang: Gang, heard: Heard | None) -> tuple[_Known, float]:
    if heard is not None and heard.report.phase in {Phase.STOPPING, Phase.STUCK}:
        return _Known("began to stop at"), heard.phase_since
    return _Known("got the order to stop at"), gang.status.phase_time


def _of_suspect(gang: Gang, one: Suspect) -> tuple[_Known, float]:
    """What is known of a pod in which a worker may run, though that isn't certain."""
    if one.heard is not None and one.heard.connected:
        return _of_worker(gang, one.heard)
    node = ", and its node does not answer" if one.shown is not None and on_lost_node(gang, one.shown) else ""
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
    if heard is None:
        return _of_start(pod)
    if not heard.connected:
        return _Known("have not reported since"), heard.at
    if heard.report.phase is Phase.STOPPING:
        return _Known("began to stop at"), heard.phase_since
    if is_without_port(gang, name):
        mark = f"{_NO_PORT} from {port_range(gang)}"
        return _Known(f"{mark} since", f": {_WHO_HAS_PORTS}", mark), heard.phase_since
    return _Known("have been connected, and not ready, since"), max(gang.status.phase_time, heard.since)


def _of_no_pod(gang: Gang, name: str) -> tuple[_Known, float]:
    at = creatable_at(gang.replaced.get(name, gang.status.recreated))
    if at > gang.now:
        return _Known("will get a new pod at"), at
    return _Known("have had no pod since"), gang.status.phase_time


def _of_start(pod: Pod) -> tuple[_Known, float]:
    """What keeps a pod from reporting for the first time."""
    since = pod.started_at or pod.scheduled_at or pod.created_at
    if pod.started_at is None and pod.reason and not pod.terminated and not pod.deleting:
        todo = advice(pod)
        mark = _CANT if pod.scheduled_at is None else f"{_CANT}{told(pod).partition(': ')[0]}"
        return _Known(_CANT + told(pod), f"; {todo}" if todo else "", mark), 0.0
    if pod.sidecar_end is not None:
        said = pod.sidecar_end.said
        return _Known(f"{_UNREACHED} until", f": {said}", said), pod.sidecar_end.at
    if pod.scheduled_at is None:
        return _Known("have waited for a node since"), pod.created_at
    if pod.started_at is None:
        return _Known("got a node at", f" ({pod.starting or _STARTING})"), pod.scheduled_at
    return _Known("started at", ", with no report since"), since
