"""Tables and texts that `gangctl status` and the live display share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from gangctl.api.gangjob import GangJob, Windowed
from gangctl.api.incident import Incident
from gangctl.api.reasons import Reason
from gangctl.api.snapshot import MemberSnapshot
from gangctl.api.status import Condition, GangPhase, Status
from gangctl.cli.gang_view import GangView
from gangctl.cli.printers.fitting_table import FittingTable
from gangctl.cli.printers.text import clean, duration, seconds, shown
from gangctl.core.policy.cause import describe
from gangctl.core.record.conditions import hangs, warned_of
from gangctl.core.record.incidents import innermost
from gangctl.explain.page.members import state

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
_PHASES: Final = ("detect", "stop", "replace", "back-off", "barrier", "start", "first step")
NO_NODES: Final[Mapping[str, str]] = MappingProxyType({})


def gangs(found: Sequence[GangView], now: float, *, wide: bool, everywhere: bool) -> FittingTable:
    """The list of gangs. ``everywhere``: with their namespaces."""
    columns: tuple[str, ...] = ("NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE")
    columns += ("REASON", "RESTORE") if wide else ()
    columns = ("NAMESPACE", *columns) if everywhere else columns
    rows = tuple(_summary(one, now, wide=wide, everywhere=everywhere) for one in found)
    return FittingTable(columns, rows, expendable=("RESTORE", "AGE", "ATTEMPT", "STEP", "REASON", "RESTARTS"))


def phase(look: GangView) -> Text:
    """The phase, in colour, and whether the gang hangs."""
    if look.stopped:
        return Text("Stopped", style="yellow")
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
        shown("" if look.stopped else status.ready),
        str(status.attempt),
        str(status.restarts.counted),
        step(status),
        duration(now - look.job.metadata.creation_timestamp),
    ]
    if wide:
        point = status.restore_point
        row += [
            shown(status.incidents[0].cause.reason if status.incidents else None),
            shown(None if point is None else point.step),
        ]
    return row


def step(status: Status) -> str:
    """The highest step of this attempt; ``-`` if none was reported."""
    progress = status.progress
    return "-" if progress is None or progress.attempt != status.attempt else str(progress.step)


def head(look: GangView, now: float) -> Text:
    """One line: the gang, its phase and its progress."""
    status = look.snapshot.status
    restarts = status.restarts
    line = Text(clean(look.job.metadata.name), style="bold")
    line.append("  ").append_text(phase(look))
    ready = shown("" if look.stopped else status.ready)
    line.append(f"  attempt {status.attempt}  ready {ready}  step {step(status)}", style="")
    line.append(f"  restarts {restarts.counted} counted, {restarts.uncounted} uncounted")
    end = status.completion_time or (look.snapshot.time if look.stopped else now)
    line.append(f"  {duration(end - look.job.metadata.creation_timestamp)}", style="dim")
    return line


def members(
    found: Sequence[MemberSnapshot], most: int, *, live: bool, nodes: Mapping[str, str] = NO_NODES
) -> RenderableType:
    """The members as a table of at most ``most`` rows; members that simply run are left out first.

    ``nodes``: member -> the node of its pod. On a cluster, the steps of single members are known only to the
    controller.
    """
    rows = [
        (
            clean(one.member),
            "spare" if one.spare else shown(one.rank),
            _phase_of(one, live=live),
            str(one.attempt or "-"),
            *(() if nodes else (shown(one.step),)),
            str(one.restarts),
            *((shown(nodes.get(one.member)),) if nodes else ()),
            shown(one.pod),
        )
        for one in chosen(found, most)
    ]
    columns = ("RESTARTS", "NODE", "POD") if nodes else ("STEP", "RESTARTS", "POD")
    made = FittingTable(
        ("MEMBER", "RANK", "PHASE", "ATTEMPT", *columns),
        tuple(rows),
        expendable=("POD", "RESTARTS", "ATTEMPT", "NODE", "STEP", "RANK"),
    )
    left = len(found) - len(rows)
    if left <= 0:
        return made
    running = sum(one.phase == "Running" and not one.finished for one in found)
    return Group(made, Text(f"and {left} more; {running} of {len(found)} run", style="dim"))


def chosen(found: Sequence[MemberSnapshot], most: int) -> list[MemberSnapshot]:
    """At most ``most`` members, in order; those that do not run come first, then those with the lowest steps."""
    if len(found) <= most:
        return list(found)

    def order(at: int) -> tuple[bool, int, int]:
        one = found[at]
        return one.finished or (one.connected and one.phase == "Running"), -1 if one.step is None else one.step, at

    return [found[at] for at in sorted(sorted(range(len(found)), key=order)[: max(1, most)])]


def incidents(found: Sequence[Incident]) -> FittingTable:
    """Incidents, newest first: the seconds of each phase, and what was lost."""
    columns = ("TO ATTEMPT", *(name.upper() for name in _PHASES), "RESTORED", "LOST", "CAUSE")
    expendable = ("BACK-OFF", "REPLACE", "BARRIER", "DETECT", "STOP", "START", "RESTORED", "LOST", "FIRST STEP")
    return FittingTable(columns, tuple(map(_incident, found)), "CAUSE", expendable)


def conditions(found: Sequence[Condition]) -> FittingTable:
    """Conditions with their messages."""
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
    """The phases of an incident with their milliseconds, in order."""
    took = incident.milliseconds
    found = (took.detect, took.stop, took.replace, took.back_off, took.barrier, took.start, took.first_step)
    return dict(zip(_PHASES, found, strict=True))


def cause(incident: Incident) -> str:
    """The cause in words, with level, rule, charge and outcome."""
    parts = [str(incident.level)]
    if incident.cause.rule:
        parts.append(f"rule {incident.cause.rule}")
    if incident.settled:
        parts.append("charged" if incident.charged else "not charged")
    if incident.outcome != "Restarted":
        parts.append(incident.outcome.lower())
    return clean(f"{describe(incident.cause)} [{', '.join(parts)}]")


def advice(job: GangJob) -> str:
    """What the user can do now; empty if there is nothing to do."""
    name, status = job.metadata.name, job.status
    incident = status.incidents[0] if status.incidents else None
    member = incident.cause.member if incident is not None else ""
    logs = f"gangctl logs {name} {member} shows why" if member else "the logs of the workers show why"
    match status.phase:
        case GangPhase.HELD:
            return f"inspect the pods ({logs}); gangctl restart {name} continues"
        case GangPhase.SUSPENDED:
            return (
                f"gangctl resume {name} continues from the restore point"
                if job.spec.suspend
                else "it resumes automatically"
            )
        case GangPhase.FAILED:
            return f"{logs}; then submit the manifest again"
        case _ if warned_of(status) in {Reason.MEMBERS_SILENT, Reason.NO_MEMBER_CONNECTS, Reason.BRAKED}:
            return "workers train on; find out why the controller does not hear them (condition Degraded)"
        case GangPhase.GATHERING if incident is not None and incident.back_off_time and status.restarts.without_step:
            return _repeats(job, logs)
        case _ if hangs(status):
            return (
                f"find out what the workers wait for, then gangctl restart {name}; progress.onHang: Restart "
                "does so by itself, and takes their stacks"
            )
        case GangPhase.RUNNING if warned_of(status):
            return f"check the workers; gangctl restart {name} restarts them"
        case _:
            return ""


def _repeats(job: GangJob, logs: str) -> str:
    """What can be done about a gang that fails again and again before a step is known, and for how long it will."""
    budget, name = job.spec.recovery.budget, job.metadata.name
    end = "the restarts have no limit"
    if isinstance(budget, Windowed):
        then = "then the gang is held" if job.spec.recovery.on_exhausted == "Hold" else "then the gang fails"
        used = job.status.restarts.in_window
        are = "is" if used == 1 else "are"
        end = f"{used} of {budget.max_restarts} restarts {are} used (recovery.budget), {then}"
    return (
        f"{job.status.restarts.without_step + 1} attempts in a row failed before a step is known: correct what fails "
        f"({logs}), or end it with gangctl stop {name}; {end}"
    )


def _incident(incident: Incident) -> tuple[str, ...]:
    return (
        str(incident.attempt),
        *(seconds(took) for took in phases(incident).values()),
        _step_or_start(incident),
        shown(lost(incident)),
        cause(incident),
    )


def lost(incident: Incident) -> str:
    """How many steps were lost, as ``7``, or ``0 to 9`` if the framework reports only some; empty if unknown."""
    if incident.lost_steps is None:
        return ""
    most = incident.lost_steps_at_most
    return f"{incident.lost_steps}{'' if most is None else f' to {most}'}"


def _step_or_start(incident: Incident) -> str:
    if incident.restored_step is not None:
        return str(incident.restored_step)
    return "the start" if incident.settled and incident.outcome == "Restarted" else "-"


def _phase_of(one: MemberSnapshot, *, live: bool) -> Text:
    """What the member does; of one that has a pod, only the controller knows it."""
    word = state(one)
    if not live and one.pod and not (one.finished or one.terminated):
        word = "Unknown"
    return Text(word, style=_MEMBER_STYLES.get(word, "yellow" if live else "dim"))
