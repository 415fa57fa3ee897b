"""Incidents: what failed, what was decided, how long each phase took, and what the ledger keeps."""

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
    """Reason, such as ExitCode or NodeLost."""
    member: Label = ""
    """Member at fault; empty if none."""
    incarnation: int = 0
    """Incarnation of its pod."""
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
    """Name or index of the rule that matched, such as rules[3]."""
    action: Action | None = None
    """Action of the rule, or by default."""
    why: Sentence = ""
    """Why the rule matched, or why none did."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """Minimum level of the restart."""
    message: Sentence = ""
    """What was seen."""
    words: Sentence = ""
    """What the worker, its framework or its supervisor says of it, if anything."""
    said: Said | None = None
    """The message as a value."""
    printed: Sentence = ""
    """Last Python exception of the worker's output, or else its last line, if output is kept."""
    time: Timestamp
    """Time of the fault."""
    exact: bool = True
    """Whether the time is exact. If not, other members may have ended before."""
    tied: Annotated[tuple[Label, ...], Field(max_length=8)] = ()
    """Members that ended at the same moment."""
    alike: bool = False
    """Whether all required members ended alike at that moment, so that no pod is suspected."""
    suspect: Label = ""
    """Member and incarnation, such as worker-3.0, suspected instead because it went on when all others had ended in one
    way."""

    def seen(self) -> str:
        """Return the message with the words of the worker, its framework or its supervisor."""
        return f"{self.message}: {self.words}" if self.words else self.message


class PhaseMilliseconds(Model):
    """Durations of the phases. A phase that is not over, or did not occur, is absent."""

    detect: int | None = None
    """From the fault to the first write of the status."""
    stop: int | None = None
    """Until the last worker had stopped."""
    replace: int | None = None
    """Until the last replacement pod was ready."""
    back_off: int | None = None
    """Wait because earlier restarts made no step."""
    barrier: int | None = None
    """Until the attempt was written to the status, without checks."""
    check: int | None = None
    """Checks."""
    start: int | None = None
    """Until the last worker had started."""
    first_step: int | None = None
    """Until every member had completed its first step, except members that report none within 10 seconds of the
    first."""


What = Literal["Stop", "Replace", "Start", "Launch", "Imports", "Rendezvous", "CheckpointLoad", "FirstStep"]


class IncidentMember(Model):
    """A phase of an incident in a member that matters."""

    member: Label
    """Name of the member."""
    incarnation: int = 0
    """Incarnation of its pod."""
    node: Name = ""
    """Node of the pod."""
    device: Name | None = None
    """Device at fault, if any."""
    part: Literal["Cause", "Replaced", "Slowest"]
    """Cause: it is at fault. Replaced: it was replaced. Slowest: the others waited for it."""
    phase: What
    """Stop: its last process ended. Replace: its new pod became ready. Start: its worker started. Launch: the launcher
    or shell started the last rank. Imports: imports of an executed rank. Rendezvous: joining the process group.
    CheckpointLoad: loading the restore point. FirstStep: the first step."""
    begin_milliseconds: int = 0
    """From the incident's start to the phase's."""
    milliseconds: int = 0
    """Duration."""


class WarmStart(Model):
    """How the processes of an attempt were started, where they can be forked or go on."""

    forked: int = 0
    """Forked processes."""
    executed: int = 0
    """Processes executed instead."""
    member: Label = ""
    """Member with executed processes, if any."""
    obstacle: Sentence = ""
    """Why they were executed."""
    template_bytes: int = 0
    """Memory of the largest template, before forks."""
    went_on: int = 0
    """Parked processes that went on."""


class KeptSignal(Model):
    """Members whose workers ended only by SIGKILL, after the stop grace period."""

    member: Label
    """The slowest member."""
    members: int = 1
    """Number of such members."""
    milliseconds: int = 0
    """From the start of its stop to SIGKILL."""


class Stacks(Model):
    """Stacks of the processes of a hung member, before their stop."""

    member: Label
    """The member."""
    text: Lines = ""
    """Python stacks of each process, innermost frame first, and what its threads wait for in the kernel, where
    readable."""


class Output(Model):
    """The last output of the worker at fault, without what looks like a secret."""

    member: Label
    """The member."""
    text: Lines = ""
    """At most 10 lines and 1,000 bytes."""


class CheckFailure(Model):
    """A member that did not pass a check."""

    member: Label
    """The member."""
    incarnation: int = 0
    """Incarnation of its pod."""
    node: Name = ""
    """Node of the pod."""
    detail: Sentence = ""
    """How the check ended, and its last line of output."""


class CheckResult(Model):
    """The result of one check."""

    name: Label
    """Name of the check."""
    result: Literal["Passed", "Failed", "Undecided", "CheckFaulty"]
    """Failed: members are to blame. Undecided: it is unknown which. CheckFaulty: the check itself, or what members
    share, is to blame."""
    members: int = 0
    """Members that were checked."""
    failures: int = 0
    """Members that did not pass."""
    failed: Annotated[tuple[CheckFailure, ...], Field(max_length=3)] = ()
    """The first of them."""
    nodes: Annotated[tuple[Label, ...], Field(max_length=3)] = ()
    """Up to 3 nodes on which members passed a check of scope Member with when NewPod or Suspect."""
    note: Sentence = ""
    """Why a check could not tell, if a member said so."""
    verifies: bool = False
    """Whether it verifies checkpoints."""
    time: Timestamp
    """Start of the check."""
    milliseconds: int = 0
    """Duration."""


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
    """Whether the budget was charged."""
    settled: bool = False
    """Whether cause, level and charge are decided. Stronger evidence may correct them for some seconds."""
    settled_time: Timestamp | None = None
    """Time of that decision."""
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"] = "Open"
    """Result. Open: the incident is not over."""
    back_off_time: Timestamp | None = None
    """Until when the restart waits, because earlier restarts made no step or for further disruptions, unless restarted
    by hand."""
    planned: bool = False
    """Whether the stop was planned, with the longer grace period."""
    milliseconds: PhaseMilliseconds = Field(default_factory=PhaseMilliseconds)
    """Durations of the phases."""
    warm_start: WarmStart | None = None
    """How processes were started. Absent if unknown, or if they are only executed."""
    kept_signal: KeptSignal | None = None
    """Workers that did not end on SIGTERM, if any."""
    stacks: Stacks | None = None
    """Stacks of the member at fault after a hang. The newest two are kept."""
    output: Output | None = None
    """Last output of the worker at fault. The newest two are kept."""
    checks: Annotated[tuple[CheckResult, ...], Field(max_length=8)] = ()
    """The newest 8 checks before the attempt."""
    missing_members: int = 0
    """Members by which the next attempt is smaller than wanted."""
    restored_step: int | None = None
    """Step that the next attempt restored; absent for the beginning."""
    lost_steps: int | None = None
    """Steps to repeat; absent if progress is unknown or there is no tier."""
    lost_steps_at_most: int | None = None
    """Upper limit, where the framework reports only some steps."""
    lost_seconds: float | None = None
    """Seconds of training of these steps; absent if unknown."""
    members: Annotated[tuple[IncidentMember, ...], Field(max_length=11)] = ()
    """The member at fault, replaced members, and the slowest of each phase."""
    trace_id: Label = Field("", alias="traceID")
    """ID of the incident's trace."""
    linked_trace_id: Label = Field("", alias="linkedTraceID")
    """ID of the previous trace, if this incident followed at once."""


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
