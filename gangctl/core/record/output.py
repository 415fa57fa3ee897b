"""The worker's own words: what the worker at fault printed last goes into the incident that its end led to.

The rule: it is read once for each cause that is the end of a process or of a container, when the write that opens the
incident is stored. The newest two incidents that have it keep the lines, and each keeps the line that tells most. A
process that SIGKILL ended could not say why, so of that one only an exception is a word about its end. No decision may
depend on it, and no restart waits for it.
"""

from __future__ import annotations

import signal
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.incident import Incident, Output
from gangctl.api.reasons import Reason
from gangctl.api.signals import signal_name
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.printed import ReadOutput
from gangctl.core.record.conditions import with_message_again

EARLIER: Final = 1
"""So many of an earlier incident are kept beside the newest."""
SECONDS: Final = 60.0
"""After the begin of the incident, a new leader does not look for it any more."""
_KILLED: Final = signal_name(signal.SIGKILL)
_ENDS: Final = frozenset(
    {
        Reason.EXIT_CODE,
        Reason.EXIT_CODE_HIDDEN,
        Reason.SIGNAL,
        Reason.OOM_KILLED,
        Reason.CONTAINER_RESTARTED,
        Reason.START_FAILED,
    }
)


def wanted(gang: Gang, status: Status) -> ReadOutput | None:
    """What is to be read once ``status`` is stored; None if it is known, or the cause is no end of a process."""
    last = _newest(status)
    if last is None or gang.now > last.time + SECONDS or last.cause.reason not in _ENDS:
        return None
    query, answer = _query(last), gang.observed.output
    if not query.member or _is_known(last) or (answer is not None and answer.query == query):
        return None
    return query


def informed(gang: Gang) -> Status:
    """Return the status with what was read of its newest incident, in its message too; the same object if not new."""
    status, answer = gang.status, gang.observed.output
    last = _newest(status)
    if last is None or answer is None or answer.query != _query(last) or not answer.printed.lines or _is_known(last):
        return status
    says_why = answer.printed.is_error or last.cause.signal != _KILLED
    told = changed(
        last,
        cause=changed(last.cause, printed=answer.printed.line if says_why else ""),
        output=Output(member=last.cause.member, text="\n".join(answer.printed.lines)),
    )
    earlier, left = [], EARLIER
    for one in status.incidents[1:]:
        earlier.append(changed(one, output=None) if one.output is not None and left <= 0 else one)
        left -= one.output is not None
    return with_message_again(gang, changed(status, incidents=(told, *earlier)))


def _newest(status: Status) -> Incident | None:
    last = status.incidents[0] if status.incidents else None
    return None if last is None or last.attempt != status.attempt else last


def _query(incident: Incident) -> ReadOutput:
    cause = incident.cause
    return ReadOutput(cause.member, cause.incarnation, incident.attempt - 1, cause.rank)


def _is_known(incident: Incident) -> bool:
    """Whether it is stored, of the cause as it is by now."""
    told = incident.output
    return bool(incident.cause.printed) or (told is not None and told.member == incident.cause.member)
