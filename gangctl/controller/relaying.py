"""Relaying: what a relay and the leader tell each other of the sidecars at the relay. Pure.

The rule: a relay decides nothing, and adds no word of its own. It passes on what a sidecar or the leader has said, with
its age. Both ends of a link forget what waits on it when it ends, and a link belongs to one term of one leader::

    passed(a message of a leader)   <=>  its link is of the term that the relay follows
    beat(report, seq, sent, step)    =   the report, aged by sent - report.sent_ms, with that number, clock and step
    newer(a session of a pod)       <=>  its sidecar gave it a higher number than the one that is known
    relayed_since(a gang)            =   when a link with its members was lost, if that was one of the first MOST_LOST
                                         in a row
    listening_since(a gang)          =   max(since the leader watches, relayed_since)

A relay must never make a ping or keep a directive: a deposed leader's word would live on. The silence of a relay must
never count as that of the members behind it.

The ends of a link may be of two releases, as in each upgrade. A later one adds kinds of entries, and fields at the end
of one, which are passed over here. What no release sends must not be taken: it ends the link.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gangctl.cluster.port import MemberIdentity
from gangsidecar import wire
from gangsidecar.wire import Report, aged, copied

MAX_ENTRIES: Final = 2048
MAX_BATCH_BYTES: Final = 1 << 20
"""A batch ends with the entry that reaches this, as it is encoded."""
MOST_LOST: Final = 4
"""Links that may end in a row: more than replicas that are replaced one after the other."""
ROW_SECONDS: Final = 600.0
"""So long without the end of a link begins another row."""
LINK_BYTES: Final = 8 << 20
"""More than any batch has: its last entry is one message of :data:`~gangsidecar.wire.MAX_BYTES` at most, and escapes
make three bytes of one."""

LISTS: Final = 2
"""So many lists of imports are kept of each role: one may be 128 KiB."""


class Open(NamedTuple):
    """A sidecar has connected to the relay."""

    session: int
    identity: MemberIdentity
    revision: int
    """Of the wire, as the sidecar has it."""
    order: int
    """Grows with each connection of the pod."""


class Say(NamedTuple):
    """A message of a sidecar or of the leader."""

    session: int
    kind: str
    age_ms: int
    """How long it has waited at the relay."""
    text: str


class Beat(NamedTuple):
    """A report in which only time has passed since the one before, or a step was made as well."""

    session: int
    age_ms: int
    seq: int
    sent_ms: int
    step: tuple[int, int] | None = None
    """Its newest step, and how many milliseconds ago it was made; None where no step was ever reported."""


class Gone(NamedTuple):
    """A sidecar's connection has ended."""

    session: int


class Close(NamedTuple):
    """Close this sidecar's connection."""

    session: int
    code: int
    reason: str


Entry = Open | Say | Beat | Gone | Close
_SHAPES: Final[dict[str, tuple[type, ...]]] = {
    Open.__name__: (int, list, int, int),
    Say.__name__: (int, str, int, str),
    Beat.__name__: (int, int, int, int),
    Gone.__name__: (int,),
    Close.__name__: (int, int, str),
}
"""Kind -> the types of its first fields."""
_MS: Final = wire.MAX_MS
_LARGE: Final = 2**63
_CODES: Final = range(1000, 5000)
FROM_SIDECARS: Final = frozenset(one.__name__ for one in (Report, wire.Scanned, wire.Imports))
"""The kinds of messages that a relay passes on to the leader."""


def encode_batch(term: str, entries: Iterator[Entry]) -> str:
    """Return the text of a batch, which takes no more entries than it has room for.

    Without entries it is the sender's sign of life. It is ASCII: its characters are its bytes.
    """
    texts, size = list[str](), 0
    while size < MAX_BATCH_BYTES and len(texts) < MAX_ENTRIES and (entry := next(entries, None)) is not None:
        texts.append(json.dumps([type(entry).__name__, *_flat(entry)], separators=(",", ":")))
        size += len(texts[-1])
    return f"[{json.dumps(term)},[{','.join(texts)}]]"


def decode_batch(text: str) -> tuple[str, list[Entry]]:
    """Return a batch's term and entries. WireError: no release of gangctl sends this."""
    try:
        match json.loads(text):
            case [str(term), list(entries), *_]:
                return term, [entry for one in entries if (entry := _entry(one)) is not None]
    except (ValueError, RecursionError) as error:
        raise wire.WireError(f"this isn't a batch of entries: {str(error)[:120]}") from None
    raise wire.WireError("this isn't a batch of entries")


def _flat(entry: Entry) -> Sequence[Any]:
    if isinstance(entry, Open):
        who = entry.identity
        names = (who.gang, who.member, who.incarnation, who.pod, who.namespace)
        return (entry.session, names, entry.revision, entry.order)
    return entry


def _entry(one: Any) -> Entry | None:
    """Read an entry; None: a later release has added its kind. A leader reads thousands in a second."""
    if type(one) is list and one and type(one[0]) is str:
        shape = _SHAPES.get(one[0])
        if shape is None:
            return None
        values = one[1 : len(shape) + 1]
        if tuple(map(type, values)) == shape and (entry := _made(one[0], values, one)) is not None:
            return entry
    raise ValueError(f"{json.dumps(one):.80}")


def _made(kind: str, values: list[Any], one: list[Any]) -> Entry | None:
    """The entry with these values, the types of which are right; None: others are not."""
    match kind:
        case "Beat":
            (session, age_ms, seq, sent_ms), step = values, one[5] if len(one) > 5 else None  # noqa: PLR2004 - its place
            if not (0 <= age_ms <= _MS and 0 <= sent_ms <= _MS):
                return None
            if step is None:
                return Beat(session, age_ms, seq, sent_ms)
            if type(step) is list and tuple(map(type, step)) == (int, int) and abs(step[0]) < _LARGE:
                return Beat(session, age_ms, seq, sent_ms, (step[0], step[1])) if 0 <= step[1] <= _MS else None
        case "Say" if 0 <= values[2] <= _MS:
            return Say(*values)
        case "Open" if tuple(map(type, values[1][:5])) == (str, str, int, str, str):
            return Open(values[0], MemberIdentity(*values[1][:5]), *values[2:])
        case "Gone":
            return Gone(*values)
        case "Close" if values[1] in _CODES:
            return Close(*values)
    return None


def after(report: Report, beat: Beat) -> Report:
    """The report that the beat is about; ``report``: the one before."""
    later = aged(report, beat.sent_ms - report.sent_ms)
    progress = later.progress
    if progress is not None and beat.step is not None:
        step, age_ms = beat.step
        progress = copied(progress, step=step, age_ms=age_ms)
    return copied(later, seq=beat.seq, sent_ms=beat.sent_ms, progress=progress)


def _beat(session: int, report: Report, waited_ms: int) -> Beat:
    step = None if report.progress is None else (report.progress.step, report.progress.age_ms)
    return Beat(session, waited_ms, report.seq, report.sent_ms, step)


# At the relay.


@dataclass(slots=True)
class _Session:
    identity: MemberIdentity
    revision: int
    order: int
    known: bool = False
    """Whether the leader of now knows of it."""
    report: tuple[Report, str, float] | None = None
    """The newest one, its text, and when it came."""
    passed: Report | None = None
    """The one that the leader has."""
    waiting: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Kind of message -> the newest one, and when it came. Reports are not among them."""


class Desk:
    """The sessions of one relay, and what the leader does not know of them yet. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.term = ""
        """That of the link; empty = there is none."""
        self._sessions: dict[int, _Session] = {}
        self._news: dict[int, None] = {}
        """The sessions of which there is news, in the order in which it came."""
        self._closed: dict[int, _Session] = {}
        """Those that have ended, with what they said last."""
        self._imports: dict[tuple[str, str], dict[int, str]] = {}
        """UID of a gang, role -> the sessions that sent a list of imports first, and the lists. The first one counts,
        as at the hub; if it goes, the next takes its place."""

    def open(self, session: int, identity: MemberIdentity, revision: int, order: int) -> None:
        """A sidecar has connected."""
        self._sessions[session] = _Session(identity, revision, order)
        self._news[session] = None

    def close(self, session: int) -> None:
        """Its connection has ended."""
        one = self._sessions.pop(session, None)
        self._news.pop(session, None)
        if one is None:
            return
        if one.known:
            self._closed[session] = one
        if session in (lists := self._imports.get(_role(one), {})):
            del lists[session]
            if not lists:
                del self._imports[_role(one)]

    def take(self, session: int, message: wire.Message, text: str, now: float) -> bool:
        """A sidecar has said this; return whether it is news, and not only another moment."""
        one = self._sessions[session]
        self._news[session] = None
        if isinstance(message, Report):
            one.report = message, text, now
            return one.passed is None or after(one.passed, _beat(session, message, 0)._replace(step=None)) != message
        one.waiting[type(message).__name__] = text, now
        if isinstance(message, wire.Imports):
            lists = self._imports.setdefault(_role(one), {})
            if session in lists or len(lists) < LISTS:
                lists[session] = text
        return True

    def link(self, term: str) -> None:
        """A leader answers, which knows nothing yet: it gets all sessions, with all that they have said last."""
        self.term = term
        self._closed.clear()
        for number, one in self._sessions.items():
            one.known, one.passed = False, None
            self._news[number] = None
        for lists in self._imports.values():
            session, text = next(iter(lists.items()))
            self._sessions[session].waiting[wire.Imports.__name__] = text, 0.0

    def unlink(self) -> None:
        """The link has ended: nothing of its leader counts any more."""
        self.term = ""

    @property
    def has_news(self) -> bool:
        """Return whether there is something for the leader, and a link."""
        return bool(self.term and (self._news or self._closed))

    def news(self, now: float) -> Iterator[Entry]:
        """What the leader gets next. What is not taken is there the next time."""
        while self.term and self._closed:
            session, one = next(iter(self._closed.items()))
            yield from self._said(session, one, now)
            self._closed.pop(session, None)
            yield Gone(session)
        while self.term and self._news:
            session = next(iter(self._news))
            yield from self._said(session, self._sessions[session], now)
            del self._news[session]

    def _said(self, session: int, one: _Session, now: float) -> Iterator[Entry]:
        if not one.known:
            one.known = True
            yield Open(session, one.identity, one.revision, one.order)
        if one.report is not None and one.report[0] is not one.passed:
            report, text, at = one.report
            beat = _beat(session, report, _ms(now - at))
            is_beat = one.passed is not None and after(one.passed, beat) == report
            one.passed = report
            yield beat if is_beat else Say(session, Report.__name__, _ms(now - at), text)
        while one.waiting:
            kind = next(iter(one.waiting))
            text, at = one.waiting.pop(kind)
            yield Say(session, kind, _ms(now - at), text)

    def heard(self, entries: Sequence[Entry]) -> list[Say | Close]:
        """What sidecars are told of a batch that came on the link."""
        return [one for one in entries if isinstance(one, Say | Close) and one.session in self._sessions]


def _role(one: _Session) -> tuple[str, str]:
    return one.identity.gang, one.identity.role


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


# At the leader.


class Roster:
    """What the sessions of one link have said and the leader has not looked at yet: of each kind the newest."""

    def __init__(self) -> None:
        self._reports: dict[int, Report] = {}
        """The newest of each session, as it was sent: a beat is about it."""
        self._waiting: dict[int, dict[str, Say | Beat]] = {}

    def put(self, entry: Say | Beat) -> bool:
        """Take an entry; return whether nothing of its session waited before."""
        is_first = entry.session not in self._waiting
        waiting = self._waiting.setdefault(entry.session, {})
        if isinstance(entry, Say):
            if entry.kind == Report.__name__:
                waiting.pop(Beat.__name__, None)
            waiting[entry.kind] = entry
        else:
            waiting[Beat.__name__] = entry
        return is_first

    def take(self, session: int, parse: Callable[[str], wire.Message]) -> Iterator[wire.Message]:
        """The messages of a session that wait, with the ages that they have by now.

        Raises:
            Whatever ``parse`` raises.
        """
        waiting = self._waiting.pop(session, {})
        beat = waiting.pop(Beat.__name__, None)
        for entry in waiting.values():
            assert isinstance(entry, Say)
            message = parse(entry.text)
            if isinstance(message, Report):
                self._reports[session] = message
                message = aged(message, entry.age_ms)
                if beat is not None:
                    continue
            yield message
        base = self._reports.get(session)
        if isinstance(beat, Beat) and base is not None:
            self._reports[session] = after(base, beat)
            yield aged(self._reports[session], beat.age_ms)

    def forget(self, session: int) -> None:
        """The session has ended."""
        self._reports.pop(session, None)
        self._waiting.pop(session, None)


class LostLinks(NamedTuple):
    """The links with members of a gang that have ended, in seconds since the epoch.

    The silence after each is the relay's, so the gang's deadlines begin anew: but only :data:`MOST_LOST` times until no
    link has ended for :data:`ROW_SECONDS`, or they would never end while a link comes and goes.
    """

    counts_since: float = 0.0
    """Since when silence is the members' own again."""
    last: float = 0.0
    times: int = 0

    def with_another(self, now: float) -> LostLinks:
        """The same, and one that has ended now."""
        times = 1 if now > self.last + ROW_SECONDS else self.times + 1
        return LostLinks(now if times <= MOST_LOST else self.counts_since, now, times)


NO_LINK_LOST: Final = LostLinks()
