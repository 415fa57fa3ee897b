"""Incidents: what failed, what was decided, how long each phase took, and what the ledger keeps."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Label, Lines, Model, Name, Sentence, Timestamp
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
    """Reason in one CamelCase word, such as ExitCode, Signal, OOMKilled, DeviceLost, NodeLost or Hang."""
    member: Label = ""
    """Member at fault; empty if no member is."""
    incarnation: int = 0
    """Incarnation of the member's pod."""
    rank: int | None = None
    """Rank of the worker process."""
    exit_code: int | None = None
    """Exit code of the process, if that is the reason."""
    signal: Label | None = None
    """Signal that ended the process, if that is the reason."""
    device: Name | None = None
    """Device at fault, if any."""
    node: Name | None = None
    """Node of the pod."""
    rule: Label | None = None
    """Rule of the pod failure policy that matched: its name, or its index such as rules[3]."""
    action: Action | None = None
    """Action of that rule, or the default action if no rule matched."""
    why: Sentence = ""
    """Why the rule matched, or why no rule matched."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """Minimum level of the restart, by the fault itself or the rule."""
    message: Sentence = ""
    """What was seen, in one sentence."""
    printed: Sentence = ""
    """Line of the worker's last output that tells most: that of the last Python exception, or else the last line. Empty
    if the worker printed nothing, or if its output is not kept."""
    time: Timestamp
    """When it happened."""
    exact: bool = True
    """Whether the time is exact. If it is not, it is unknown whether ends of other members came before."""
    tied: Annotated[tuple[Label, ...], Field(max_length=8)] = ()
    """Members that ended at the same moment, as far as can be determined."""
    alike: bool = False
    """Whether every required member ended in the same way at that moment. Then no pod is suspected."""
    suspect: Label = ""
    """The member that is suspected in place of the one at fault, and the incarnation of its pod, such as worker-3.0: it
    went on when all others had ended in one way. They may have ended because they waited for it."""


class PhaseMilliseconds(Model):
    """Duration of each phase of the incident. Absent while the phase is not over, or if it did not take place."""

    detect: int | None = None
    """Milliseconds from the fault to the first write of the status."""
    stop: int | None = None
    """Milliseconds until the last worker had stopped."""
    replace: int | None = None
    """Milliseconds until the last replacement pod was ready."""
    back_off: int | None = None
    """Milliseconds that the restart waited because no step is known of the restarts before it."""
    barrier: int | None = None
    """Milliseconds until the attempt was decided and written to the status."""
    start: int | None = None
    """Milliseconds until the last worker had started."""
    first_step: int | None = None
    """Milliseconds until every member had completed its first training step: the start-up of the workers. Members that
    report no step within 10 seconds of the first one are not counted."""


class IncidentMember(Model):
    """One phase of an incident, as one relevant member took part in it."""

    member: Label
    """Name of the member."""
    incarnation: int = 0
    """Incarnation of the member's pod."""
    node: Name = ""
    """Node of the pod."""
    device: Name | None = None
    """Device of the member that is at fault, if any."""
    part: Literal["Cause", "Replaced", "Slowest"]
    """Why the member is listed: it is at fault, its pod was replaced, or the others waited for it."""
    phase: Literal["Stop", "Replace", "Start", "CheckpointLoad", "FirstStep"]
    """What is measured. Stop: until its last process was gone. Replace: until its new pod was ready. Start: until its
    worker had started. CheckpointLoad: loading the restore point. FirstStep: from the start of the worker, or of the
    step if the framework reports its duration, to the end of the first training step."""
    begin_milliseconds: int = 0
    """Start of the phase in milliseconds after the start of the incident, on the controller's clock."""
    milliseconds: int = 0
    """Duration in milliseconds."""


class WarmStart(Model):
    """How the worker processes of an attempt were started, where they can be forked or can go on."""

    forked: int = 0
    """Number of processes that were forked from a template."""
    executed: int = 0
    """Number of processes for which the command was executed instead."""
    member: Label = ""
    """A member whose processes were executed; empty if none were."""
    obstacle: Sentence = ""
    """Why they were executed."""
    template_bytes: int = 0
    """Memory of the largest template in bytes, before processes were forked from it."""
    went_on: int = 0
    """Number of processes that went on with the attempt: they were not started, as they had parked."""


class KeptSignal(Model):
    """Members whose workers did not end on SIGTERM: SIGKILL ended them when the stop grace period was over."""

    member: Label
    """The member for which the restart waited longest."""
    members: int = 1
    """Number of these members."""
    milliseconds: int = 0
    """Milliseconds from the begin of its stop to SIGKILL."""


class Stacks(Model):
    """What the processes of a hung member were doing, just before they were stopped."""

    member: Label
    """Name of the member."""
    text: Lines = ""
    """For each process its Python stacks, innermost frame first, and what each thread waits for in the kernel, as far
    as the pod lets its supervisor look."""


class Output(Model):
    """What the worker at fault printed last, without what looks like a secret."""

    member: Label
    """Name of the member."""
    text: Lines = ""
    """The last lines of its log: at most 10, of at most 1,000 bytes."""


class Incident(Model):
    """An incident: from the first fault to the first training step after it."""

    attempt: int
    """Attempt that the incident led to."""
    time: Timestamp
    """Start of the incident."""
    cause: Cause
    """Cause of the incident."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """What the restart replaced."""
    charged: bool = False
    """Whether the incident was charged to the budget."""
    settled: bool = False
    """Whether cause, level and charge are decided. Stronger evidence may still correct them for a few seconds."""
    settled_time: Timestamp | None = None
    """Time of that decision."""
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"] = "Open"
    """What the incident led to. Open: it is not over."""
    back_off_time: Timestamp | None = None
    """Time until which the restart waits, or waited, though it could start: because no step is known of the restarts
    before it, or for other disruptions. A restart by hand ends the wait."""
    planned: bool = False
    """Whether the stop was planned, without a failure: workers had the longer grace period for a last checkpoint."""
    milliseconds: PhaseMilliseconds = Field(default_factory=PhaseMilliseconds)
    """Duration of each phase."""
    warm_start: WarmStart | None = None
    """How the worker processes were started. Absent if there is no other way than to execute the commands, or while
    it is unknown."""
    kept_signal: KeptSignal | None = None
    """Workers that kept SIGTERM for themselves; absent if all ended in time."""
    stacks: Stacks | None = None
    """Stacks of the member at fault, if the gang hung. Only the newest two that were taken are kept."""
    output: Output | None = None
    """What the worker at fault printed last, if a process or a container ended. Only the newest two that were read are
    kept."""
    restored_step: int | None = None
    """Step that the next attempt restored; absent if it started from the beginning."""
    lost_steps: int | None = None
    """Number of steps that must be repeated; absent if progress is unknown, or if the job declares no tier."""
    lost_steps_at_most: int | None = None
    """The largest number that it can be, if the framework reports only some steps; absent if lostSteps is exact."""
    lost_seconds: float | None = None
    """Seconds that the failed attempt had trained for those steps; absent if unknown."""
    members: Annotated[tuple[IncidentMember, ...], Field(max_length=8)] = ()
    """Members of interest: the one at fault, the replaced ones, and the slowest of each phase."""
    trace_id: Label = Field("", alias="traceID")
    """ID of the trace of the incident."""
    linked_trace_id: Label = Field("", alias="linkedTraceID")
    """ID of the trace of the previous incident, if this one followed at once; empty otherwise."""


class LedgerEntry(Model):
    """One settled incident, as the budget and the ladder remember it."""

    time: Timestamp
    """Start of the incident."""
    attempt: int
    """Attempt that the incident led to."""
    member: Label = ""
    """Member at fault."""
    incarnation: int = 0
    """Incarnation of its pod at that time."""
    charged: bool
    """Whether the incident was charged to the budget."""
    failure: bool = False
    """Whether it was a failure of the job: neither a disruption nor a request of the user."""
    restored_step: int | None = None
    """Restore point of the attempt that failed."""
    progressed: bool | None = None
    """Whether a step beyond the restore point was reported. Absent if unknown, which never counts as no progress."""
