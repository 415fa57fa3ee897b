"""Tables and texts that `gangctl status` and the displays of `gangctl run` share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.status import Condition, GangPhase, MemberSnapshot
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers.text import clean, format_duration, format_seconds, value_or_dash
from gangctl.core.record.conditions import hangs
from gangctl.core.record.incidents import innermost
from gangctl.story import words
from gangctl.story.phases import LOOKS, phase_named

GAP: Final = 3
"""Between two columns."""
_LEAST_FOLD: Final = 16
"""A column that is wrapped gets at least as much room."""
STYLES: Final = {
    GangPhase.RUNNING: "green",
    GangPhase.SUCCEEDED: "bold green",
    GangPhase.FAILED: "bold red",
    GangPhase.HELD: "bold yellow",
    GangPhase.GATHERING: "yellow",
    GangPhase.PENDING: "cyan",
    GangPhase.SUSPENDED: "magenta",
}
_MEMBER_STYLES: Final = {"Running": "green", "Ready": "cyan", "Stuck": "bold red", "Finished": "bold green"}
"""States that last, and the one that needs a look. The others are yellow."""
NO_NODES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FittingTable:
    """A table as kubectl prints it. Where a terminal is too narrow, columns are left out, instead of each being cut."""

    columns: tuple[str, ...]
    rows: tuple[Sequence[str | Text], ...]
    fold: str = ""
    """The only column that is wrapped if there is no room."""
    expendable: tuple[str, ...] = ()
    """Columns that can be left out, the first one first."""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw what fits."""
        left_out = self._left_out(options.max_width)
        shown = [at for at, name in enumerate(self.columns) if name not in left_out]
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for name in (self.columns[at] for at in shown):
            wraps = name == self.fold
            table.add_column(name, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
        for row in self.rows:
            table.add_row(*(Text(cell) if isinstance(cell := row[at], str) else cell for at in shown))
        yield table

    def _left_out(self, width: int) -> tuple[str, ...]:
        widths = {name: self._width(at) for at, name in enumerate(self.columns)}
        expendable = [name for name in self.expendable if name in widths]
        for count in range(len(expendable)):
            left_out = tuple(expendable[:count])
            kept = [its for name, its in widths.items() if name not in left_out]
            if sum(kept) + GAP * (len(kept) - 1) <= width:
                return left_out
        return tuple(expendable)

    def _width(self, at: int) -> int:
        name = self.columns[at]
        cells = (cell if isinstance(cell := row[at], str) else cell.plain for row in self.rows)
        widest = max(map(cell_len, (name, *cells)))
        return min(widest, max(_LEAST_FOLD, cell_len(name))) if name == self.fold else widest


def gangs_table(found: Sequence[GangView], now: float, *, wide: bool, everywhere: bool) -> FittingTable:
    """The list of gangs. ``everywhere``: with their namespaces."""
    columns: tuple[str, ...] = ("NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE")
    columns += ("REASON", "RESTORE") if wide else ()
    columns = ("NAMESPACE", *columns) if everywhere else columns
    rows = tuple(_summary(one, now, wide=wide, everywhere=everywhere) for one in found)
    return FittingTable(columns, rows, expendable=("RESTORE", "AGE", "ATTEMPT", "STEP", "REASON", "RESTARTS"))


def phase(look: GangView) -> Text:
    """The phase, in colour, and whether the gang hangs."""
    if look.stopped:
        return Text(words.STOPPED, style="yellow")
    status = look.snapshot.status
    hung = Text(", and hangs", style="red") if hangs(status) else Text()
    return Text(status.phase or "New", style=STYLES.get(status.phase, "")).append_text(hung)


def _summary(look: GangView, now: float, *, wide: bool, everywhere: bool) -> list[str | Text]:
    """One gang as a row of `gangctl status`; the columns are the CRD's."""
    status = look.snapshot.status
    row: list[str | Text] = [
        *([clean(look.job.metadata.namespace)] if everywhere else []),
        clean(look.job.metadata.name),
        phase(look),
        value_or_dash("" if look.stopped else status.ready),
        str(status.attempt),
        str(status.restarts.counted),
        value_or_dash(words.current_step(status)),
        format_duration(now - look.job.metadata.creation_timestamp),
    ]
    if wide:
        point = status.restore_point
        row += [
            value_or_dash(status.incidents[0].cause.reason if status.incidents else None),
            value_or_dash(None if point is None else point.step),
        ]
    return row


def head(look: GangView, now: float) -> Text:
    """One line: the gang, its phase and its progress."""
    status = look.snapshot.status
    restarts = status.restarts
    line = Text(clean(look.job.metadata.name), style="bold")
    line.append("  ").append_text(phase(look))
    ready = value_or_dash("" if look.stopped else status.ready)
    line.append(
        f"  attempt {status.attempt}  ready {ready}  step {value_or_dash(words.current_step(status))}", style=""
    )
    line.append(f"  restarts {restarts.counted} counted, {restarts.uncounted} uncounted")
    end = status.completion_time or (look.snapshot.time if look.stopped else now)
    line.append(f"  {format_duration(end - look.job.metadata.creation_timestamp)}", style="dim")
    return line


def members_table(
    found: Sequence[MemberSnapshot], most: int, *, live: bool, nodes: Mapping[str, str] = NO_NODES
) -> RenderableType:
    """The members as a table of at most ``most`` rows; members that simply run are left out first.

    ``nodes``: member -> the node of its pod. On a cluster, the attempts and steps of single members are known only to
    the controller.
    """
    rows = [
        (
            clean(one.member),
            "spare" if one.spare else value_or_dash(one.rank),
            _phase_of(one, live=live),
            *(() if nodes else (str(one.attempt or "-"), value_or_dash(one.step))),
            str(one.restarts),
            *((value_or_dash(nodes.get(one.member)),) if nodes else ()),
            value_or_dash(one.pod),
        )
        for one in choose_members(found, most)
    ]
    columns = ("RESTARTS", "NODE", "POD") if nodes else ("ATTEMPT", "STEP", "RESTARTS", "POD")
    made = FittingTable(
        ("MEMBER", "RANK", "PHASE", *columns),
        tuple(rows),
        expendable=("POD", "RESTARTS", "ATTEMPT", "NODE", "STEP", "RANK"),
    )
    left = len(found) - len(rows)
    if left <= 0:
        return made
    running = sum(words.state(one) == "Running" for one in found)
    return Group(made, Text(f"and {left} more; {running} of {len(found)} run", style="dim"))


def choose_members(found: Sequence[MemberSnapshot], most: int) -> list[MemberSnapshot]:
    """Choose ``most`` members at most, in order: those that do not run, then those with the lowest steps."""
    if len(found) <= most:
        return list(found)

    def order(at: int) -> tuple[bool, int, int]:
        one = found[at]
        return words.state(one) in {"Finished", "Running"}, -1 if one.step is None else one.step, at

    return [found[at] for at in sorted(sorted(range(len(found)), key=order)[: max(1, most)])]


def incidents(found: Sequence[Incident]) -> FittingTable:
    """Incidents, newest first: the seconds of each phase, and what was lost."""
    kept = {name for one in found for name in phases(one)}
    shown = [look.words for look in LOOKS.values() if look.words in kept]
    *names, last = (name.upper() for name in shown)
    columns = ("TO ATTEMPT", *names, last, "RESTORED", "LOST", "CAUSE")
    rows = tuple(_incident(one, shown) for one in found)
    return FittingTable(columns, rows, "CAUSE", (*names, "RESTORED", "LOST", last))


def conditions(found: Sequence[Condition]) -> FittingTable:
    rows = tuple((clean(one.type), one.status, clean(one.reason), clean(one.message)) for one in found)
    return FittingTable(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows, "MESSAGE", ("REASON", "STATUS"))


def trace_hint(job: GangJob) -> str:
    """How to see where the time of the last incident went."""
    last = job.status.incidents[0].attempt if job.status.incidents else 0
    return clean(f"gangctl trace {job.metadata.name} --incident {last} shows where the time of the last incident went")


def hung(job: GangJob) -> str:
    """Where the member at fault hung, and how to see all of it; empty if the last incident has no stacks."""
    stacks = job.status.incidents[0].stacks if job.status.incidents else None
    where = "" if stacks is None else innermost(stacks)
    if stacks is None or not where:
        return ""
    return clean(f"hung: {stacks.member} in {where}; gangctl trace {job.metadata.name} shows all stacks")


def phases(incident: Incident) -> dict[str, int | None]:
    """The phases that the status has, in words, with their milliseconds, in order."""
    return {LOOKS[phase_named(name, incident)].words: took for name, took in incident.milliseconds}


def describe_cause(incident: Incident) -> str:
    """The cause in words, with level, rule, charge and outcome."""
    parts = [str(incident.level)]
    if incident.cause.rule:
        parts.append(f"rule {incident.cause.rule}")
    if incident.settled:
        parts.append("charged" if incident.charged else "not charged")
    if incident.outcome != "Restarted":
        parts.append(incident.outcome.lower())
    return clean(f"{words.cause(incident)} [{', '.join(parts)}]")


def _incident(incident: Incident, shown: Sequence[str]) -> tuple[str, ...]:
    found = phases(incident)
    return (
        str(incident.attempt),
        *(format_seconds(found.get(name)) for name in shown),
        _step_or_start(incident),
        _lost(incident),
        describe_cause(incident),
    )


def _lost(incident: Incident) -> str:
    """How many steps were lost: ``7``, or ``0 to 9`` if the framework reports only some; ``-`` if unknown."""
    most = incident.lost_steps_at_most
    return value_or_dash(incident.lost_steps if most is None else f"{incident.lost_steps} to {most}")


def _step_or_start(incident: Incident) -> str:
    if not incident.settled or incident.outcome != "Restarted":
        return "-"
    return "the start" if incident.restored_step is None else str(incident.restored_step)


def _phase_of(one: MemberSnapshot, *, live: bool) -> Text:
    """The member's state. If the member has a pod, only the controller knows its state."""
    word = words.state(one)
    if not live and one.pod and not (one.finished or one.terminated):
        word = "Unknown"
    return Text(word, style=_MEMBER_STYLES.get(word, "yellow" if live else "dim"))
