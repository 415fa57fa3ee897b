"""The plain display for pipes and logs: one line for each change, never overwritten or cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TextIO

from gangctl.api.incident import Incident
from gangctl.api.snapshot import MemberSnapshot
from gangctl.api.status import GangPhase, Status
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.text import clean, output_line, seconds
from gangctl.explain.lost_steps import lost_steps

STEP_SECONDS: Final = 5.0
"""Minimum interval between lines about steps."""
WAITING_SECONDS: Final = 10.0
"""Interval between lines about what the gang waits for."""
MOST_NAMES: Final = 8
_WAITING: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING})


class PlainOutput:
    """A display that writes lines to a stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        """``clock``: seconds since the epoch."""
        self._stream = stream
        self._clock = clock
        self._status: Status | None = None
        """The status printed last; None before the first update."""
        self._members: dict[str, str] = {}
        self._advice = ""
        self._printed_at = 0.0
        """Time of the last line about a step or about waiting."""

    def update(self, look: GangView, now: float) -> None:
        """Print what has changed since the last call."""
        if look.stopped:
            return  # The stored status doesn't know it.
        status = look.snapshot.status
        # Past incidents of a gang that is taken over are not printed; gangctl status shows them.
        old = Status(incidents=status.incidents) if self._status is None else self._status
        for incident in reversed(status.incidents):
            self._incident(incident, next((one for one in old.incidents if one.attempt == incident.attempt), None))
        self._phase(look.job.metadata.name, status, old, now)
        self._advise(tables.advice(look.job))
        if look.live:
            self._changes(look.snapshot.members)
        self._time_passes(look, old, now)
        self._status = status

    def note(self, text: str) -> None:
        """One line."""
        stamp = datetime.fromtimestamp(self._clock()).astimezone().strftime("%H:%M:%S.%f")[:-3]
        self._stream.write(f"{stamp} {clean(text)}\n")
        self._stream.flush()

    def output(self, member: str, line: str) -> None:
        """Print a line of a worker's output, without control characters."""
        self._stream.write(f"{clean(member)} | {output_line(line)}\n")
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: there is no terminal state to restore."""

    def _phase(self, name: str, status: Status, old: Status, now: float) -> None:
        if (status.phase, status.attempt, status.message) == (old.phase, old.attempt, old.message):
            return
        self.note(
            f"{name}: {status.phase or 'New'}, attempt {status.attempt}: {status.message or 'the gang is stored'}"
        )
        self._printed_at = now

    def _advise(self, advice: str) -> None:
        if advice and advice != self._advice:
            self.note(f"next: {advice}")
        self._advice = advice

    def _incident(self, incident: Incident, before: Incident | None) -> None:
        if incident.settled and not (before is not None and before.settled):
            restored = incident.restored_step
            point = "" if incident.outcome != "Restarted" else "; restored from the beginning"
            if restored is not None:
                point = f"; restored from step {restored}"
            steps, most = incident.lost_steps, incident.lost_steps_at_most
            lost = "" if steps is None else f", {lost_steps(steps, most)} lost"
            self.note(f"incident to attempt {incident.attempt}: {tables.cause(incident)}{point}{lost}")
        known = {name for name, ms in tables.phases(incident).items() if ms is not None}
        said = set() if before is None else {name for name, ms in tables.phases(before).items() if ms is not None}
        news = (known - said) & {"start", "first step"}
        if news:
            what = "has completed a step" if "first step" in news else "runs again"
            took = ", ".join(f"{name} {seconds(ms)}" for name, ms in tables.phases(incident).items() if ms is not None)
            self.note(f"attempt {incident.attempt} {what} (seconds): {took}")

    def _changes(self, members: tuple[MemberSnapshot, ...]) -> None:
        said = {one.member: _state(one) for one in members}
        changed: dict[str, list[str]] = {}
        for name, state in said.items():
            if self._members.get(name) != state:
                changed.setdefault(state, []).append(name)
        for state, names in changed.items():
            self.note(f"{_listed(names)}: {state}")
        self._members = said

    def _time_passes(self, look: GangView, old: Status, now: float) -> None:
        status = look.snapshot.status
        progress = status.progress
        if progress is not None and progress != old.progress and progress.attempt == status.attempt:
            if now - self._printed_at >= STEP_SECONDS:
                self.note(f"{look.job.metadata.name}: attempt {status.attempt}, step {progress.step}")
                self._printed_at = now
        elif status.phase in _WAITING and now - self._printed_at >= WAITING_SECONDS:
            missing = [
                one.member
                for one in look.snapshot.members
                if not one.spare and not (one.connected and one.phase == "Ready" and one.attempt == status.attempt)
            ]
            waited = f"waiting for {_listed(missing)}" if missing else clean(status.message)
            self.note(f"{look.job.metadata.name}: {status.phase} for {now - status.phase_time:.0f} s: {waited}")
            self._printed_at = now


def _state(one: MemberSnapshot) -> str:
    pod = "its pod" if one.incarnation == 0 else f"its pod number {one.incarnation + 1}"
    if one.finished:
        return "has finished"
    if not one.pod:
        return f"waiting for {pod}"
    if one.terminated:
        return f"{pod} has ended"
    if one.connected:
        return f"{one.phase}, attempt {one.attempt}"
    return f"{pod} is not connected" if one.phase else f"{pod} is starting"


def _listed(names: list[str]) -> str:
    left = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {left} more" if left > 0 else "")
