"""Incidents: what failed, what was decided, how long each phase took, and what the ledger keeps."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Label, Lines, Model, Name, Said, Sentence, Timestamp
from gangctl.api.policy import Action


class IncidentLevel(StrEnum):
    """What a restart replaces, from least to most."""

    PROCESS = "Process"
    CONTAINER = "Container"
    POD = "Pod"
    GANG = "Gang"


class Cause(Model):
    """Cause of an incident: the strongest evidence found."""

    reason: Label
    """Reason, such as ExitCode, Signal, OOMKilled, DeviceLost, NodeLost or Hang."""
    member: Label = ""
    """Member at fault; empty if none."""
    incarnation: int = 0
    """Incarnation of the member's pod."""
    rank: int | None = None
    """Rank of the process."""
    exit_code: int | None = None
    """Exit code of the process, if any."""
    signal: Label | None = None
    """Signal that ended the process, if any."""
    device: Name | None = None
    """Device at fault, if any."""
    node: Name | None = None
    """Node of the pod."""
    rule: Label | None = None
    """Rule that matched: its name or index, such as rules[3]."""
    action: Action | None = None
    """Action of that rule, or the default action."""
    why: Sentence = ""
    """Why the rule matched, or why none did."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """Minimum level of the restart, by the fault or the rule."""
    message: Sentence = ""
    """What was seen."""
    words: Sentence = ""
    """What the worker, its framework or its supervisor says of it. Empty if they say nothing."""
    said: Said | None = None
    """The message as a value."""
    printed: Sentence = ""
    """The last Python exception of the worker's output, or else the last line. Empty if there is none or output is not
    kept."""
    time: Timestamp
    """Time of the fault."""
    exact: bool = True
    """Whether the time is exact. If not, other members may have ended before."""
    tied: Annotated[tuple[Label, ...], Field(max_length=8)] = ()
    """Members that ended at the same moment."""
    alike: bool = False
    """Whether all required members ended in the same way at that moment. Then no pod is suspected."""
    suspect: Label = ""
    """Member and incarnation, such as worker-3.0, suspected in place of the member at fault because it went on when all
    others had ended in one way."""

    def seen(self) -> str:
        """Return the message with the words of the worker, its framework or its supervisor."""
        return f"{self.message}: {self.words}" if self.words else self.message


class PhaseMilliseconds(Model):
    """Durations of the phases. A phase that is not over, or did not occur, is absent."""

    detect: int | None = None
    """Milliseconds from the fault to the first write of the status."""
    stop: int | None = None
    """Milliseconds until the last worker had stopped."""
    replace: int | None = None
    """Milliseconds until the last replacement pod was ready."""
    back_off: int | None = None
    """Milliseconds that the restart waited because earlier restarts made no step."""
    barrier: int | None = None
    """Milliseconds until the attempt was written to the status, without checks."""
    check: int | None = None
    """Milliseconds that checks took."""
    start: int | None = None
    """Milliseconds until the last worker had started."""
    first_step: int | None = None
    """Milliseconds until every member had completed its first training step. Members that report none within 10 seconds
    of the first are not counted."""


What = Literal["Stop", "Replace", "Start", "Launch", "Imports", "Rendezvous", "CheckpointLoad", "FirstStep"]


class IncidentMember(Model):
    """A phase of an incident in a member that matters."""

    member: Label
    """Name of the member."""
    incarnation: int = 0
    """Incarnation of the member's pod."""
    node: Name = ""
    """Node of the pod."""
    device: Name | None = None
    """Device at fault, if any."""
    part: Literal["Cause", "Replaced", "Slowest"]
    """Why the member is listed: it is at fault, it was replaced, or the others waited for it."""
    phase: What
    """Stop: until its last process was gone. Replace: until its new pod was ready. Start: until its worker had started.
    Launch: until the worker's launcher or shell had started the last rank. Imports: what an executed rank spent on
    imports. Rendezvous: joining the process group. CheckpointLoad: loading the restore point. FirstStep: until the end
    of the first training step."""
    begin_milliseconds: int = 0
    """Start of the phase in milliseconds after the start of the incident."""
    milliseconds: int = 0
    """Duration in milliseconds."""


class WarmStart(Model):
    """How the processes of an attempt were started, where they can be forked or go on."""

    forked: int = 0
    """Number of forked processes."""
    executed: int = 0
    """Number of processes executed instead."""
    member: Label = ""
    """Member with executed processes; empty if none."""
    obstacle: Sentence = ""
    """Why they were executed."""
    template_bytes: int = 0
    """Memory of the largest template in bytes, before forks."""
    went_on: int = 0
    """Number of parked processes that went on."""


class KeptSignal(Model):
    """Members whose workers ended only by SIGKILL, after the stop grace period."""

    member: Label
    """The member that took longest."""
    members: int = 1
    """Number of these members."""
    milliseconds: int = 0
    """Milliseconds from the start of its stop to SIGKILL."""


class Stacks(Model):
    """Stacks of the processes of a hung member, before their stop."""

    member: Label
    """Name of the member."""
    text: Lines = ""
    """For each process its Python stacks, innermost frame first, and what each thread waits for in the kernel, as far
    as its supervisor may look."""


class Output(Model):
    """The last output of the worker at fault, without what looks like a secret."""

    member: Label
    """Name of the member."""
    text: Lines = ""
    """At most 10 lines and 1,000 bytes."""


class CheckFailure(Model):
    """A member that did not pass a check."""

    member: Label
    """Name of the member."""
    incarnation: int = 0
    """Incarnation of its pod."""
    node: Name = ""
    """Node of the pod."""
    detail: Sentence = ""
    """How the check ended there, and the last line that it printed."""


class CheckResult(Model):
    """The result of one check."""

    name: Label
    """Name of the check."""
    result: Literal["Passed", "Failed", "Undecided", "CheckFaulty"]
    """Failed: members are to blame. Undecided: which member is to blame could not be told. CheckFaulty: so many failed
    that the check itself, or what they share, is to blame."""
    members: int = 0
    """Number of members that were checked."""
    failures: int = 0
    """Number of members that did not pass."""
    failed: Annotated[tuple[CheckFailure, ...], Field(max_length=3)] = ()
    """The first of them."""
    nodes: Annotated[tuple[Label, ...], Field(max_length=3)] = ()
    """Nodes on which members of a check of scope Member passed, when it is NewPod or Suspect, at most 3."""
    note: Sentence = ""
    """Why the check could not tell, if a member said so."""
    time: Timestamp
    """Start of the check."""
    milliseconds: int = 0
    """Duration of the check."""


class Incident(Model):
    """An incident: from the first fault to the first training step after it."""

    attempt: int
    """Attempt that followed the incident."""
    time: Timestamp
    """Start of the incident."""
    cause: Cause
    """Cause of the incident."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """What the restart replaced."""
    charged: bool = False
    """Whether the incident was charged to the budget."""
    settled: bool = False
    """Whether cause, level and charge are decided. Stronger evidence may still correct them for some seconds."""
    settled_time: Timestamp | None = None
    """Time of that decision."""
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"] = "Open"
    """Result of the incident. Open: it is not over."""
    back_off_time: Timestamp | None = None
    """Time until which the restart waits by choice: because earlier restarts made no step, or for other disruptions. A
    restart by hand ends the wait."""
    planned: bool = False
    """Whether the stop was planned, with the longer grace period."""
    milliseconds: PhaseMilliseconds = Field(default_factory=PhaseMilliseconds)
    """Durations of the phases."""
    warm_start: WarmStart | None = None
    """How the processes were started. Absent if unknown, or if commands can only be executed."""
    kept_signal: KeptSignal | None = None
    """Workers that did not end on SIGTERM; absent if all did."""
    stacks: Stacks | None = None
    """Stacks of the member at fault after a hang. The newest two are kept."""
    output: Output | None = None
    """Last output of the worker at fault, if a process or container ended. The newest two are kept."""
    checks: Annotated[tuple[CheckResult, ...], Field(max_length=8)] = ()
    """Checks before the attempt, the newest 8."""
    restored_step: int | None = None
    """Step that the next attempt restored; absent for the beginning."""
    lost_steps: int | None = None
    """Number of steps to repeat; absent if progress is unknown or there is no tier."""
    lost_steps_at_most: int | None = None
    """Upper limit if the framework reports only some steps; absent if lostSteps is exact."""
    lost_seconds: float | None = None
    """Seconds of training of these steps; absent if unknown."""
    members: Annotated[tuple[IncidentMember, ...], Field(max_length=11)] = ()
    """The member at fault, replaced members, and the slowest of each phase."""
    trace_id: Label = Field("", alias="traceID")
    """ID of the incident's trace."""
    linked_trace_id: Label = Field("", alias="linkedTraceID")
    """ID of the previous trace, if this incident followed at once; otherwise empty."""


class LedgerEntry(Model):
    """A settled incident, as the budget and the ladder count it."""

    time: Timestamp
    """Start of the incident."""
    attempt: int
    """Attempt that followed the incident."""
    member: Label = ""
    """Member at fault."""
    incarnation: int = 0
    """Incarnation of its pod at that time."""
    charged: bool
    """Whether the incident was charged to the budget."""
    failure: bool = False
    """Whether it was a failure of the job, neither a disruption nor a request."""
    restored_step: int | None = None
    """Restore point of the attempt that failed."""
    progressed: bool | None = None
    """Whether a step beyond the restore point was reported; absent if unknown."""
