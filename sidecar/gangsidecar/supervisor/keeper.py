"""What outlives a supervisor: its state file for the next session, and its last words for the controller.

The rule: both are written whenever a process of the worker has ended, and at last once more, after the report was sent:
to keep them must never delay a report. What can't be written is logged once, and costs only what it would have saved.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.common.log import log
from gangsidecar.supervisor import state_file, termination_message


class Keeper:
    """Writes the two files of one supervisor."""

    def __init__(self, state: str, termination_log: str) -> None:
        self._state = state
        self._termination_log = termination_log
        self._left: tuple[wire.End, ...] = ()
        """The ends in the termination message, without their ages."""
        self._failed = {"state": False, "words": False}

    def keep(self, report: wire.Report, now_ms: int, ran: int, *, last: bool) -> None:
        """Write what the report says, and which attempt ran. ``last``: the supervisor ends, so ages count from now."""
        try:
            state_file.save(self._state, report, now_ms, ran)
            self._failed["state"] = False
        except OSError as error:
            self._warn("state", "ends and checkpoints can't be kept for the next session", error)
        ends = tuple(replace(end, age_ms=0) for end in report.ends)
        if ends == self._left and not last:
            return
        self._left = ends
        try:
            termination_message.leave(self._termination_log, report.ends)
            self._failed["words"] = False
        except OSError as error:
            self._warn("words", "how the worker ended can't be left in the termination message", error)

    def _warn(self, what: str, text: str, error: OSError) -> None:
        if not self._failed[what]:
            log("warning", text, reason=error)
        self._failed[what] = True
