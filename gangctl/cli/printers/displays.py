"""Displays of gangs while they change: live on a terminal, and a line for each change into a pipe.

Lines are never overwritten or cut. `gangctl status --watch` into a pipe prints of one gang the lines of `gangctl run
--plain`; of all gangs, rows of the table: at first one of each gang, then of those that have changed.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TextIO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gangctl.api.incident import Incident
from gangctl.api.status import GangPhase, MemberSnapshot, Status
from gangctl.cli.errors import UserError
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.output import check_reader, print_err, print_out
from gangctl.cli.printers.text import clean, first, format_seconds, output_line
from gangctl.cli.targets.port import Target
from gangctl.story.words import advice, attempt_checks, lost_steps

NOTES: Final = 4
MOST_INCIDENTS: Final = 5
_LEAST_MEMBERS: Final = 3
_MEMBERS_OTHER_LINES: Final = 3
"""Heading of the members, number of those left out, and the line of the cursor."""
STEP_SECONDS: Final = 5.0
"""Minimum interval between lines about steps."""
WAITING_SECONDS: Final = 10.0
"""Interval between lines about what the gang waits for."""
MOST_NAMES: Final = 8
_WAITING: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING})
_STEADY = frozenset({"STEP", "AGE", "RESTORE"})
"""Columns that change all the time."""
_GONE = "Deleted"


class Display(Protocol):
    """Shows a gang to the user. Each call may raise OSError if the terminal or the reader of the pipe is gone."""

    def update(self, look: GangView, now: float) -> None:
        """Show the current view of the gang; ``now`` in seconds since the epoch."""

    def note(self, text: str) -> None:
        """Show a note that is not part of the gang's status."""

    def output(self, member: str, line: str) -> None:
        """Show one line of a worker's output."""

    def close(self) -> None:
        """Restore the terminal."""


class LiveDisplay:
    """A display that draws the gang at the bottom of the terminal; the workers' output scrolls above it."""

    def __init__(self, out: Console, footer: Sequence[str]) -> None:
        """``footer``: lines that stay at the bottom."""
        self._out = out
        self._footer = footer
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._last: tuple[GangView, float] | None = None
        self._live = Live(console=out, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def update(self, look: GangView, now: float) -> None:
        """Redraw the gang."""
        self._last = look, now
        self._live.update(self._drawing(look, now), refresh=True)

    def note(self, text: str) -> None:
        """Add a note below the tables; only the last few are shown."""
        self._notes.append(clean(text))
        if self._last is not None:
            self.update(*self._last)

    def output(self, member: str, line: str) -> None:
        """Print a line of a worker's output above the drawing."""
        self._out.print(Text(f"{clean(member)} | ", style="dim").append(output_line(line), style=""))

    def close(self) -> None:
        """Keep the last drawing, and move the cursor below it."""
        self._live.stop()

    def _drawing(self, look: GangView, now: float) -> RenderableType:
        status = look.snapshot.status
        incidents = status.incidents[:MOST_INCIDENTS]
        because = clean(look.stopped or status.message) or "-"
        above: list[RenderableType] = [tables.head(look, now), Text(f"because: {because}")]
        todo = "" if look.stopped else advice(look.job)
        if todo:
            above.append(Text(f"next: {clean(todo)}", style="bold"))
        above += [Text(clean(one)) for one in attempt_checks(status)]
        below: list[RenderableType] = []
        if incidents:
            below += [Text(), Text("Incidents, newest first (seconds)", style="bold"), tables.incidents(incidents)]
        below += [Text(), *(Text(note, style="yellow") for note in self._notes)]
        if not look.live and not all(one.terminated for one in look.snapshot.members):
            below.append(Text("the controller does not answer; workers continue to train", style="yellow"))
        below += [] if look.stopped else [Text(line, style="dim") for line in self._footer]
        others = Group(*above, Text(), *below)
        room = self._out.size.height - len(self._out.render_lines(others, pad=False)) - _MEMBERS_OTHER_LINES
        members = tables.members_table(look.snapshot.members, max(_LEAST_MEMBERS, room), live=look.live)
        return Group(*above, Text(), members, *below)


class PlainOutput:
    """A display that writes lines to a stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], gang: str = "") -> None:
        """``clock``: seconds since the epoch. ``gang``: its name, before what doesn't have it; empty if it is alone."""
        self._stream = stream
        self._clock = clock
        self._gang = gang
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
        for check in attempt_checks(status):
            if check not in attempt_checks(old):
                self.note(check)
        self._phase(look.job.metadata.name, status, old, now)
        self._advise(advice(look.job))
        if look.live:
            self._changes(look.snapshot.members)
        self._time_passes(look, old, now)
        self._status = status

    def note(self, text: str) -> None:
        """One line."""
        stamp = datetime.fromtimestamp(self._clock()).astimezone().strftime("%H:%M:%S.%f")[:-3]
        named = not self._gang or text.startswith((f"{self._gang} ", f"{self._gang}:"))
        whose = "" if named else f"{self._gang}: "
        self._stream.write(f"{stamp} {clean(whose + text)}\n")
        self._stream.flush()

    def output(self, member: str, line: str) -> None:
        """Print a line of a worker's output, without control characters."""
        name = f"{self._gang}/{member}" if self._gang else member
        self._stream.write(f"{clean(name)} | {output_line(line)}\n")
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
            restored = "the beginning" if incident.restored_step is None else f"step {incident.restored_step}"
            point = f"; restored from {restored}" if incident.outcome == "Restarted" else ""
            steps, most = incident.lost_steps, incident.lost_steps_at_most
            lost = "" if steps is None else f", {lost_steps(steps, most)} lost"
            self.note(f"incident to attempt {incident.attempt}: {tables.describe_cause(incident)}{point}{lost}")
        took = _known(incident)
        news = took.keys() - (set() if before is None else _known(before).keys())
        if news & {"start", "first step"}:
            what = "has completed a step" if "first step" in news else "runs again"
            times = ", ".join(f"{name} {format_seconds(milliseconds)}" for name, milliseconds in took.items())
            self.note(f"attempt {incident.attempt} {what} (seconds): {times}")

    def _changes(self, members: tuple[MemberSnapshot, ...]) -> None:
        said = {one.member: _state(one) for one in members}
        changed: dict[str, list[str]] = {}
        for name, state in said.items():
            if self._members.get(name) != state:
                changed.setdefault(state, []).append(name)
        for state, names in changed.items():
            self.note(f"{first(names, MOST_NAMES)}: {state}")
        self._members = said

    def _time_passes(self, look: GangView, old: Status, now: float) -> None:
        status = look.snapshot.status
        progress = status.progress
        if progress is not None and progress != old.progress and progress.attempt == status.attempt:
            if now - self._printed_at >= STEP_SECONDS:
                self.note(f"{look.job.metadata.name}: attempt {status.attempt}, step {progress.step}")
                self._printed_at = now
        elif status.phase in _WAITING and now - self._printed_at >= WAITING_SECONDS:
            is_cluster = any(one.pod_status for one in look.snapshot.members)  # Only its controller hears of members.
            waiting = () if is_cluster else look.snapshot.members
            missing = [
                one.member
                for one in waiting
                if not one.spare and not (one.connected and one.phase == "Ready" and one.attempt == status.attempt)
            ]
            waited = f"waiting for {first(missing, MOST_NAMES)}" if missing else clean(status.message)
            self.note(f"{look.job.metadata.name}: {status.phase} for {now - status.phase_time:.0f} s: {waited}")
            self._printed_at = now


def _known(incident: Incident) -> dict[str, int]:
    """The phases that are over, in words, with their milliseconds."""
    return {name: took for name, took in tables.phases(incident).items() if took is not None}


def _state(one: MemberSnapshot) -> str:
    pod = "its pod" if one.incarnation == 0 else f"its pod number {one.incarnation + 1}"
    if one.finished:
        return "has finished"
    if not one.pod:
        return f"waiting for {pod}"
    if one.terminated:
        return f"{pod} has ended"
    if one.pod_status:
        return one.pod_status
    if one.connected:
        return f"{one.phase}, attempt {one.attempt}"
    return f"{pod} is not connected" if one.phase else f"{pod} is starting"


def watch_lines(target: Target, name: str | None, *, wide: bool, everywhere: bool) -> None:
    """Print changes until Ctrl-C.

    Args:
        target: the place with the gangs.
        name: the gang to watch; None for all.
        wide: rows with more columns.
        everywhere: rows with namespaces.

    Raises:
        UserError: the gang is gone.
        BrokenPipeError: the reader of the pipe is gone.
    """
    one, all_gangs = PlainOutput(sys.stdout, time.time), Rows(target, wide=wide, everywhere=everywhere)

    def show(views: Sequence[GangView]) -> None:
        check_reader()
        if name is None:
            all_gangs.show(views, time.time())
        elif views:
            one.update(views[0], time.time())
        else:
            raise UserError(f"gang {name} is gone from {target.location}")

    try:
        target.watch(name, show)
    except KeyboardInterrupt:
        return


class Rows:
    """Prints rows of gangs that have changed. Columns grow with what is printed."""

    def __init__(self, target: Target, *, wide: bool, everywhere: bool) -> None:
        self._target = target
        self._wide = wide
        self._everywhere = everywhere
        self._rows: dict[str, list[str]] | None = None
        """By UID, as printed last; None before the first look."""
        self._widths: list[int] = []

    def show(self, views: Sequence[GangView], now: float) -> None:
        """Print what has changed since the last look. ``now``: seconds since the epoch."""
        table = tables.gangs_table(views, now, wide=self._wide, everywhere=self._everywhere)
        phase = table.columns.index("PHASE")
        rows = {one.job.metadata.uid: list(map(_plain, row)) for one, row in zip(views, table.rows, strict=True)}
        before = self._rows
        if before is None:
            self._begin(table, list(rows.values()))
        for uid, row in (before or {}).items():
            if uid not in rows:
                self._print([*row[:phase], _GONE, *row[phase + 1 :]])
        for uid, row in rows.items():
            if self._told(table, row) != self._told(table, (before or {}).get(uid, [])):
                self._print(row)
        self._rows = rows

    def _begin(self, table: tables.FittingTable, rows: list[list[str]]) -> None:
        self._widths = [max(map(cell_len, column)) for column in zip(table.columns, *rows, strict=True)]
        self._print(list(table.columns))
        if not rows:
            print_err(f"there are no gangs in {clean(self._target.location)} yet")

    def _told(self, table: tables.FittingTable, row: list[str]) -> list[str]:
        return [cell for name, cell in zip(table.columns, row, strict=False) if name not in _STEADY]

    def _print(self, row: list[str]) -> None:
        self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        cells = (
            cell + " " * (width + tables.GAP - cell_len(cell)) for cell, width in zip(row, self._widths, strict=True)
        )
        print_out("".join(cells).rstrip())


def _plain(cell: str | Text) -> str:
    return cell if isinstance(cell, str) else cell.plain
