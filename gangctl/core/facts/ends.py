"""Ends: how the processes of a member's worker ended, from its supervisor's report, or else from its last words.

The rule: a report counts before last words, since it is exact, and has what was found in the log. Last words tell of a
supervisor that is gone, with its connection or the controller that heard it. Their time is that of the container's end,
cut to whole seconds, and a supervisor that was killed wrote them earlier. So it is unknown what came before such an
end: it is tied with every other (``evidence.py``), and must not end a job as the earliest, when they are gone either.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangctl.api.gangjob import NeverSucceeds
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.secrets import masked
from gangctl.core.facts.starts import NOT_EXECUTABLE
from gangctl.core.facts.world import Pod
from gangctl.words import faults
from gangctl.words.message import Message
from gangsidecar.wire import End, Level, LogMatch


def faults_of_ends(gang: Gang, pod: Pod, attempt: int) -> Iterator[Fault]:
    """The processes of the attempt that ended by themselves, and not because all their work was done."""
    heard = gang.heard.get(pod.uid)
    reported = () if heard is None else heard.report.ends
    for end in reported:
        if heard is not None and _is_fault(gang, end, attempt):
            lines = tuple(one for one in heard.report.log_matches if one.attempt == attempt)
            yield _fault(pod, end, heard.ago(end.age_ms), lines)
    known = {(end.attempt, end.local_rank) for end in reported}
    if pod.last_words is not None:
        for end in pod.last_words.ends:
            if (end.attempt, end.local_rank) not in known and _is_fault(gang, end, attempt):
                yield _fault(pod, end, pod.last_words.at - end.age_ms / 1000, exact=False)


def says_why(gang: Gang, pod: Pod, attempt: int) -> bool:
    """Whether its last words explain that the pod has ended: its worker had, and its supervisor was left alone."""
    return pod.last_words is not None and any(_is_fault(gang, end, attempt) for end in pod.last_words.ends)


def _is_fault(gang: Gang, end: End, attempt: int) -> bool:
    never = isinstance(gang.spec.success_policy, NeverSucceeds)
    return end.attempt == attempt and not end.stopped and (end.exit_code != 0 or never)


def _fault(pod: Pod, end: End, time: float, lines: tuple[LogMatch, ...] = (), *, exact: bool = True) -> Fault:
    reason, seen = _seen(end)
    return Fault(
        reason,
        pod.member,
        time,
        pod.incarnation,
        rank=end.rank,
        exit_code=end.exit_code,
        signal=end.signal,
        node=pod.node or None,
        conditions=pod.conditions,
        level=Level.POD if pod.terminated and not exact else Level.PROCESS,
        message=seen,
        words=_words(end),
        exact=exact,
        lines=lines,
    )


def _seen(end: End) -> tuple[Reason, Message]:
    if end.oom:
        return Reason.OOM_KILLED, faults.killed_for_memory()
    if end.signal is not None:
        return Reason.SIGNAL, faults.ended_by_signal(end.signal)
    if end.hidden:
        return Reason.EXIT_CODE_HIDDEN, faults.exit_code_hidden(end.exit_code)
    not_executed = end.exit_code in NOT_EXECUTABLE
    reason = Reason.START_FAILED if not_executed and end.message else Reason.EXIT_CODE
    return reason, faults.exited(end.exit_code, of_shell=not_executed and not end.message)


def _words(end: End) -> str:
    """What its supervisor or the worker itself says of it, in one line without what looks like a secret."""
    lines = (masked(line.strip()) for line in end.message.splitlines())
    return " ".join(filter(None, lines))
